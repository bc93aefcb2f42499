// Sums of one row in ascending order by a whole warp. Loads are spread over the lanes, so they are wide and early; the
// sum itself takes lane after lane, because FP32 addition rounds and any other order would give other bits.
#pragma once

#include "kernels/device.hpp"

namespace quads::kernels {

constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ inline int lane_id() { return threadIdx.x % kWarp; }

// Index of this warp in the grid of one-dimensional blocks.
__device__ inline int global_warp() { return blockIdx.x * (blockDim.x / kWarp) + threadIdx.x / kWarp; }

// sum_{i<n} a(i) * b(i) by fma from 0, ascending. All lanes call it and get the sum. `terms(i)` returns the pair {a, b}
// and is called once per i, by lane i % 32.
template <typename Terms>
__device__ float ascending_fma(int n, Terms terms) {
    float sum = 0.0f;
    for (int begin = 0; begin < n; begin += kWarp) {
        const int i = begin + lane_id();
        const float2 mine = i < n ? terms(i) : make_float2(0.0f, 0.0f);
        const int count = min(kWarp, n - begin);
#pragma unroll 8
        for (int lane = 0; lane < count; ++lane) {
            sum = fmaf(__shfl_sync(kAllLanes, mine.x, lane), __shfl_sync(kAllLanes, mine.y, lane), sum);
        }
    }
    return sum;
}

// sum_{i<n} term(i) by addition from 0, ascending.
template <typename Term>
__device__ float ascending_sum(int n, Term term) {
    float sum = 0.0f;
    for (int begin = 0; begin < n; begin += kWarp) {
        const int i = begin + lane_id();
        const float mine = i < n ? term(i) : 0.0f;
        const int count = min(kWarp, n - begin);
#pragma unroll 8
        for (int lane = 0; lane < count; ++lane) sum = sum + __shfl_sync(kAllLanes, mine, lane);
    }
    return sum;
}

// Maxima need no order.
__device__ inline float warp_max(float x) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
    return x;
}

}  // namespace quads::kernels
