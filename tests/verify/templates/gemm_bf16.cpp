// BF16 GEMM: a correct start, slow on purpose. Make it yours, then: make verify OP=gemm_bf16 KERNEL=this_file
#include <cmath>

#include "reference/codec.hpp"
#include "tests/verify/kernel.h"

void kernel_gemm_bf16(const uint16_t* x, const uint16_t* w, int M, int N, int K, float* y) {
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float acc = 0.0f;
            for (int k = 0; k < K; ++k) {
                acc = std::fma(quads::bf16_from_bits(x[m * K + k]), quads::bf16_from_bits(w[n * K + k]), acc);
            }
            y[m * N + n] = acc;
        }
    }
}
