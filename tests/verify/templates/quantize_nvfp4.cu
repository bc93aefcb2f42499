// NVFP4 quantiser: a correct start, one thread per row. Make it yours, then:
//   make verify OP=quantize_nvfp4 KERNEL=this_file
#include <cfloat>

#include "reference/codec.hpp"
#include "tests/verify/kernel.h"

__device__ float amax(const float* x, int n) {
    float largest = 0.0f;
    for (int i = 0; i < n; ++i) largest = fmaxf(largest, fabsf(x[i]));
    return largest;
}

__global__ void quantize_rows(const float* x, int M, int K, uint8_t* codes, uint8_t* scales, float* outer) {
    const int m = blockIdx.x * blockDim.x + threadIdx.x, B = quads::blocks_of(K);
    if (m >= M) return;
    const float row_amax = amax(x + m * K, K);
    const float encode = row_amax == 0.0f ? 1.0f : fminf(2688.0f / row_amax, FLT_MAX);
    outer[m] = 1.0f / encode;
    for (int b = 0; b < B; ++b) {
        const float* block = x + m * K + 16 * b;
        const int columns = min(16, K - 16 * b);
        scales[m * B + b] = quads::e4m3_encode(amax(block, columns) * (encode * (1.0f / 6.0f)));
        const float scale = quads::e4m3_decode(scales[m * B + b]);
        const float inverse = fminf(1.0f / (scale * outer[m]), FLT_MAX);
        uint8_t code[16] = {};
        for (int i = 0; i < columns && scale != 0.0f; ++i) code[i] = quads::e2m1_encode(block[i] * inverse);
        for (int i = 0; i < 8; ++i) codes[(m * B + b) * 8 + i] = quads::pack_codes(code[2 * i], code[2 * i + 1]);
    }
}

void kernel_quantize_nvfp4(const float* x, int M, int K, uint8_t* codes, uint8_t* scales, float* outer) {
    quantize_rows<<<(M + 31) / 32, 32>>>(x, M, K, codes, scales, outer);
}
