// Quantise, rung 2. One warp per row, one lane per column: neighbouring lanes read neighbouring numbers, 128 bytes at a
// time, 16 lanes find their block's amax by shuffles, and with one outer scale per row the amax of the row is found by
// the same warp just before. The second read of the row comes from cache.
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/nvfp4.cuh"

namespace quads::kernels::ladder {
namespace {

// amax of row m, for a whole warp.
__device__ float amax_of_row(const float* x, std::int64_t m, int K) {
    float amax = 0.0f;
    for (int k = lane_id(); k < K; k += kWarp) amax = fmaxf(amax, fabsf(x[m * K + k]));
    return warp_max(amax);
}

// Maxima of non-negative floats are maxima of their bits, for which there is an atomic instruction.
__global__ void group_amax_kernel(const float* x, Groups groups, int M, int K, unsigned* amax_bits) {
    const int m = global_warp();
    if (m >= M) return;
    const float amax = amax_of_row(x, m, K);
    if (lane_id() == 0) atomicMax(&amax_bits[group_of(groups, m)], float_bits(amax));
}

__global__ void row_kernel(const float* x, Groups groups, int M, int K, const unsigned* amax_bits, Nvfp4 out) {
    const int m = global_warp();
    if (amax_bits != nullptr && m < groups.E && lane_id() == 0) {
        out.outer[m] = outer_of(float_from_bits(amax_bits[m])).decode;
    }
    if (m >= M) return;
    const Outer outer =
        outer_of(amax_bits != nullptr ? float_from_bits(amax_bits[group_of(groups, m)]) : amax_of_row(x, m, K));
    if (amax_bits == nullptr && lane_id() == 0) out.outer[m] = outer.decode;
    const std::int64_t row = m;
    quantize_row([&](int k) { return x[row * K + k]; }, K, outer, out.codes + row * code_bytes_of(K),
                 out.scales + row * blocks_of(K));
}

}  // namespace

void quantize_nvfp4_2_warp(const float* x, Groups groups, int M, int K, Nvfp4 out) {
    const bool by_group = out.outer_scale == OuterScale::group;
    const int warps = by_group && groups.E > M ? groups.E : M;
    if (warps == 0) return;
    const unsigned grid = blocks_for(warps, kThreads / kWarp);
    const Scratch<unsigned> amax_bits(by_group ? groups.E : 0);
    if (by_group) {
        CUDA_CHECK(cudaMemsetAsync(amax_bits.data(), 0, groups.E * sizeof(unsigned), stream()));
        group_amax_kernel<<<grid, kThreads, 0, stream()>>>(x, groups, M, K, amax_bits.data());
        CUDA_CHECK_LAUNCH(group_amax_kernel);
    }
    row_kernel<<<grid, kThreads, 0, stream()>>>(x, groups, M, K, by_group ? amax_bits.data() : nullptr, out);
    CUDA_CHECK_LAUNCH(row_kernel);
}

}  // namespace quads::kernels::ladder
