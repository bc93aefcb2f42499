// Quantise, rung 1. One thread per scale block: it reads 16 numbers, finds their amax, the scale and the codes, just as
// the formulas in reference/nvfp4.hpp read. Before that, one thread per row or group finds the outer scale.
// Neighbouring threads are 64 bytes apart, so every load of a warp touches 32 different pieces of memory.
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/nvfp4.cuh"

namespace quads::kernels::ladder {
namespace {

// The amax of rows begin .. end-1.
__device__ float amax_of_rows(const float* x, int begin, int end, int K) {
    float amax = 0.0f;
    for (std::int64_t i = static_cast<std::int64_t>(begin) * K; i < static_cast<std::int64_t>(end) * K; ++i) {
        amax = fmaxf(amax, fabsf(x[i]));
    }
    return amax;
}

__global__ void outer_kernel(const float* x, Groups groups, int M, int K, bool by_group, float* amax, float* outer) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (by_group ? groups.E : M)) return;
    amax[i] = by_group ? amax_of_rows(x, groups.offsets[i], groups.offsets[i + 1], K) : amax_of_rows(x, i, i + 1, K);
    outer[i] = outer_of(amax[i]).decode;
}

__global__ void block_kernel(const float* x, Groups groups, int M, int K, const float* amax, Nvfp4 out) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::int64_t blocks = blocks_of(K), m = i / blocks;
    if (m >= M) return;
    const int first = static_cast<int>(i % blocks) * kBlock;
    const Outer outer = outer_of(amax[out.outer_scale == OuterScale::row ? m : group_of(groups, static_cast<int>(m))]);

    float value[kBlock], block_amax = 0.0f;
    for (int j = 0; j < kBlock; ++j) {
        value[j] = first + j < K ? x[m * K + first + j] : 0.0f;
        block_amax = fmaxf(block_amax, fabsf(value[j]));
    }
    const std::uint8_t scale = e4m3_encode(block_amax * (outer.encode * (1.0f / 6.0f)));
    const float inverse = scale == 0 ? 0.0f : fminf(1.0f / (e4m3_decode(scale) * outer.decode), FLT_MAX);
    out.scales[i] = scale;
    for (int j = 0; j < kBlock; j += 2) {
        // Code +0 for a scale of 0, where x * 0 would keep the sign of x.
        const std::uint8_t even = scale == 0 ? 0 : e2m1_encode(value[j] * inverse);
        const std::uint8_t odd = scale == 0 ? 0 : e2m1_encode(value[j + 1] * inverse);
        out.codes[i * (kBlock / 2) + j / 2] = pack_codes(even, odd);
    }
}

}  // namespace

void quantize_nvfp4_1_naive(const float* x, Groups groups, int M, int K, Nvfp4 out) {
    const bool by_group = out.outer_scale == OuterScale::group;
    const int outers = by_group ? groups.E : M;
    if (outers == 0) return;
    const Scratch<float> amax(outers);
    outer_kernel<<<blocks_for(outers), kThreads, 0, stream()>>>(x, groups, M, K, by_group, amax.data(), out.outer);
    CUDA_CHECK_LAUNCH(outer_kernel);
    if (M == 0) return;
    const std::int64_t blocks = static_cast<std::int64_t>(M) * blocks_of(K);
    block_kernel<<<blocks_for(blocks), kThreads, 0, stream()>>>(x, groups, M, K, amax.data(), out);
    CUDA_CHECK_LAUNCH(block_kernel);
}

}  // namespace quads::kernels::ladder
