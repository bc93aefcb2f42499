// W4A4 GEMM, rung 1. One thread per output, and the loop of reference/gemm_w4a4.cpp. Every thread decodes all its
// operands itself and reads them from device memory a byte at a time: slow, and the rung to read first.
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/ladder.hpp"
#include "reference/codec.hpp"

namespace quads::kernels::ladder {
namespace {

// dot_b * (sx_b * sw_b) of one 16-block; every operation is exact.
__device__ float block_term(Nvfp4 x, std::int64_t x_block, Nvfp4 w, std::int64_t w_block) {
    const std::uint8_t* x_codes = x.codes + x_block * (kBlock / 2);
    const std::uint8_t* w_codes = w.codes + w_block * (kBlock / 2);
    float dot = 0.0f;
    for (int i = 0; i < kBlock; ++i) dot += e2m1_decode(code_at(x_codes, i)) * e2m1_decode(code_at(w_codes, i));
    return dot * (e4m3_decode(x.scales[x_block]) * e4m3_decode(w.scales[w_block]));
}

__global__ void gemm_kernel(Nvfp4 x, Nvfp4 residual, bool has_residual, Nvfp4 w, Groups groups, int M, int N, int K,
                            float* y) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::int64_t m = i / N, n = i % N, blocks = blocks_of(K);
    if (m >= M) return;
    const int e = group_of(groups, static_cast<int>(m));

    float acc = 0.0f;
    for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t w_block = (static_cast<std::int64_t>(e) * N + n) * blocks + b;
        acc += block_term(x, m * blocks + b, w, w_block);  // the one rounding, in ascending order of b
        if (has_residual) acc += block_term(residual, m * blocks + b, w, w_block);
    }
    y[i] = acc * (x.outer[x.outer_scale == OuterScale::row ? m : e] * w.outer[e]);
}

}  // namespace

void gemm_w4a4_1_naive(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    const std::int64_t outputs = static_cast<std::int64_t>(M) * N;
    if (outputs == 0) return;
    gemm_kernel<<<blocks_for(outputs), kThreads, 0, stream()>>>(x, residual != nullptr ? *residual : x,
                                                                residual != nullptr, w, groups, M, N, K, y);
    CUDA_CHECK_LAUNCH(gemm_kernel);
}

}  // namespace quads::kernels::ladder
