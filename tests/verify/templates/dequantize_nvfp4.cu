// NVFP4 dequantiser: a correct start, one thread per value. Make it yours, then:
//   make verify OP=dequantize_nvfp4 KERNEL=this_file
#include "reference/codec.hpp"
#include "tests/verify/kernel.h"

__global__ void dequantize(const uint8_t* codes, const uint8_t* scales, const float* outer, int M, int K, float* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, m = i / K, k = i % K, B = quads::blocks_of(K);
    if (m >= M) return;
    const float q = quads::e2m1_decode(quads::code_at(codes + m * 8 * B, k));
    x[i] = (q * quads::e4m3_decode(scales[m * B + k / 16])) * outer[m];
}

void kernel_dequantize_nvfp4(const uint8_t* codes, const uint8_t* scales, const float* outer, int M, int K, float* x) {
    dequantize<<<(M * K + 255) / 256, 256>>>(codes, scales, outer, M, K, x);
}
