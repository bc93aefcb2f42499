// NVFP4 dequantiser: a correct start. Make it yours, then: make verify OP=dequantize_nvfp4 KERNEL=this_file
#include "reference/codec.hpp"
#include "tests/verify/kernel.h"

void kernel_dequantize_nvfp4(const uint8_t* codes, const uint8_t* scales, const float* outer, int M, int K, float* x) {
    const int B = quads::blocks_of(K);
    for (int m = 0; m < M; ++m) {
        for (int k = 0; k < K; ++k) {
            const float q = quads::e2m1_decode(quads::code_at(codes + m * 8 * B, k));
            const float s = quads::e4m3_decode(scales[m * B + k / 16]);
            x[m * K + k] = (q * s) * outer[m];
        }
    }
}
