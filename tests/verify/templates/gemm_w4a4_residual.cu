// W4A4 GEMM with residual compensation: a correct start, one thread per output. Make it yours, then:
//   make verify OP=gemm_w4a4_residual KERNEL=this_file
#include "reference/codec.hpp"
#include "tests/verify/kernel.h"

// The products of a block, summed as the integer 4 * dot: exact in any order.
__device__ int dot4(const uint8_t* x, const uint8_t* w) {
    int sum = 0;
    for (int i = 0; i < 16; ++i)
        sum += quads::e2m1_doubled(quads::code_at(x, i)) * quads::e2m1_doubled(quads::code_at(w, i));
    return sum;
}

__global__ void gemm(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer,
                     const uint8_t* residual_codes, const uint8_t* residual_scales, const uint8_t* w_codes,
                     const uint8_t* w_scales, const float* w_outer, int M, int N, int K, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, m = i / N, n = i % N, B = quads::blocks_of(K);
    if (m >= M) return;
    float acc = 0.0f;
    for (int b = 0; b < B; ++b) {
        const int xb = m * B + b, wb = n * B + b;
        const float sw = quads::e4m3_decode(w_scales[wb]);
        acc += dot4(x_codes + 8 * xb, w_codes + 8 * wb) * 0.25f * (quads::e4m3_decode(x_scales[xb]) * sw);
        acc += dot4(residual_codes + 8 * xb, w_codes + 8 * wb) * 0.25f * (quads::e4m3_decode(residual_scales[xb]) * sw);
    }
    y[i] = acc * (x_outer[m] * w_outer[0]);
}

void kernel_gemm_w4a4_residual(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer,
                               const uint8_t* residual_codes, const uint8_t* residual_scales, const uint8_t* w_codes,
                               const uint8_t* w_scales, const float* w_outer, int M, int N, int K, float* y) {
    gemm<<<(M * N + 127) / 128, 128>>>(x_codes, x_scales, x_outer, residual_codes, residual_scales, w_codes, w_scales,
                                       w_outer, M, N, K, y);
}
