// The largest magnitude of a row or group, the first step of both quantisers, and its check for NaN and Inf.
#pragma once

#include "kernels/warp.cuh"
#include "reference/codec.hpp"
#include "reference/dims.hpp"

namespace quads::kernels {

// Magnitudes as bit patterns: they order as integers, and NaN and Inf come out on top instead of lost.
__device__ inline std::uint32_t magnitude_bits(float x) { return float_bits(x) & 0x7FFFFFFFu; }

// amax of row m of x (M, K), for a whole warp; notes NaN and Inf.
__device__ inline float row_amax(const float* x, int m, int K, Trouble trouble, Report report) {
    const float* row = x + static_cast<std::int64_t>(m) * K;
    std::uint32_t largest = 0;
    for (int k = lane_id(); k < K; k += kWarp) {
        const std::uint32_t bits = magnitude_bits(row[k]);
        if (bits >= kInfinityBits) report.note(trouble, m, k, row[k]);
        largest = max(largest, bits);
    }
    return float_from_bits(__reduce_max_sync(kAllLanes, largest));
}

// amax[e] = largest magnitude in the rows of group e, 0 for an empty one; notes NaN and Inf.
void group_amax(const float* x, Groups groups, int M, int K, Trouble trouble, Report report,
                float* amax);  // (E)

}  // namespace quads::kernels
