// BF16 GEMM: a correct start, one thread per output. Make it yours, then: make verify OP=gemm_bf16 KERNEL=this_file
#include "reference/codec.hpp"
#include "tests/verify/kernel.h"

__global__ void gemm(const uint16_t* x, const uint16_t* w, int M, int N, int K, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, m = i / N, n = i % N;
    if (m >= M) return;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc = fmaf(quads::bf16_from_bits(x[m * K + k]), quads::bf16_from_bits(w[n * K + k]), acc);
    y[i] = acc;
}

void kernel_gemm_bf16(const uint16_t* x, const uint16_t* w, int M, int N, int K, float* y) {
    gemm<<<(M * N + 127) / 128, 128>>>(x, w, M, N, K, y);
}
