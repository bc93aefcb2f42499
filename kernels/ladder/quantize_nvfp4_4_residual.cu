// Quantise, rung 4: main pass and residual in one kernel. A row stays in registers from its load to both sets of codes:
// the main codes, the residual r = x - (q s) g, the choice of the channels to keep, and the codes of r. Apart, the two
// passes would read x three times and write r.
//
// The kept channels are the largest |r| of the row, the lower index first among equals: those that reach a
// threshold, which is found by counting. Each count tells on which side of the guess the threshold lies, and a straight
// line through what is known gives the next guess: about five counts of two instructions a number, where halving takes
// twenty. No guess changes the bits: counts are exact, and the search ends when one is the number to keep.
#include "kernels/device.hpp"
#include "kernels/kernels.hpp"
#include "kernels/ladder/ladder.hpp"
#include "kernels/ladder/quantize_row.cuh"
#include "reference/check.hpp"

namespace quads::kernels::ladder {
namespace {

constexpr std::uint32_t kInfinity = 0x7F800000u;
constexpr int kBlocks = 2;  // scale blocks of a lane
constexpr int kWarpColumns = kWarp * kBlocks * kBlock, kLongestRow = 8 * kWarpColumns;
// Warps of a multiprocessor: 72 registers a thread, without spills. No more than 24 thread blocks fit on some GPUs.
constexpr int kResidentWarps = 28;

// Sums over the kWarps warps of a thread block, which pass one number each; every thread gets them.
template <int kWarps>
struct RowSum {
    int* of_warps;  // shared, [2][kWarps]: one half after the other, so that one barrier a sum suffices
    int offset = 0;

    __device__ int operator()(int of_warp) {
        int sum = of_warp;
        if constexpr (kWarps > 1) {
            if (lane_id() == 0) of_warps[offset + threadIdx.x / kWarp] = of_warp;
            __syncthreads();
            sum = 0;
            for (int i = 0; i < kWarps; ++i) sum += of_warps[offset + i];
            offset ^= kWarps;
        }
        return sum;
    }
};

// 1 where |x| >= threshold, else 0, in one instruction; additions of such floats run beside it, on another pipe.
__device__ inline float reaches(float x, float threshold) {
    float result;
    asm("{ .reg .f32 a; abs.f32 a, %1; set.ge.f32.f32 %0, a, %2; }" : "=f"(result) : "f"(x), "f"(threshold));
    return result;
}

// About 1 / x, x normal.
__device__ inline float approximate_reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// A row in the registers of a thread block, zeros beyond its end.
template <int kWarps>
struct Row {
    float at[kBlocks][kBlock];

    // Columns from at[0][0] to at[i][0].
    static constexpr __device__ int offset(int i) { return i * kWarps * kWarp * kBlock; }

    // How many of this warp's numbers x fulfil condition(x, columns from at[0][0] to x), which is 1 or 0.
    template <typename Condition>
    __device__ int count(Condition condition) const {
        float sum[2] = {condition(at[0][0], 0), condition(at[0][1], 1)};  // two chains of additions
#pragma unroll
        for (int i = 2; i < kBlocks * kBlock; ++i) {
            sum[i % 2] += condition(at[i / kBlock][i % kBlock], offset(i / kBlock) + i % kBlock);
        }
        return __reduce_add_sync(kAllLanes, static_cast<int>(sum[0] + sum[1]));
    }

    __device__ float smallest_kept(int K, int kept, Outer outer);
};

// The threshold that the `kept` largest magnitudes reach, 0 < kept < K. Where more reach it, sets those of them to 0
// that have no room.
template <int kWarps>
__device__ float Row<kWarps>::smallest_kept(int K, int kept, Outer outer) {
    __shared__ int of_warps[2 * kWarps];
    RowSum<kWarps> row_sum{of_warps};
    float sample = 0.0f;  // the mean magnitude of each thread's first block, for the first guess
#pragma unroll
    for (int j = 0; j < kBlock; ++j) sample += fabsf(at[0][j]);
    sample = row_sum(__reduce_add_sync(kAllLanes, static_cast<int>(sample * outer.encode))) * outer.decode;
    const float mean = sample * approximate_reciprocal(min(K, offset(1)));

    float low = 0.0f, high = float_from_bits(kInfinity);
    // At least `kept` magnitudes reach low, so many too many; fewer reach high, so many are missing.
    float surplus = kWarps * kWarpColumns - kept, missing = kept;
    int reach_low = kWarpColumns, reach_high = 0;                        // of this warp
    float guess = 1.5f * mean * (K - kept) * approximate_reciprocal(K);  // fits residuals from one half kept on
    for (int pass = 0; surplus > 0; ++pass) {
        const float middle = float_from_bits((float_bits(low) + float_bits(high)) / 2);
        if (middle == low) break;  // nothing lies between the bounds
        const float next = pass < 16 && guess > low && guess < high ? guess : middle;
        int reach = reach_low;
        if (reach_low != reach_high) reach = count([&](float x, int) { return reaches(x, next); });
        const float more = row_sum(reach) - kept;
        if (more >= 0) {
            low = next, surplus = more, reach_low = reach;
        } else {
            high = next, missing = -more, reach_high = reach;
        }
        const float width = high < float_from_bits(kInfinity) ? high - low : mean;
        guess = low + width * surplus * approximate_reciprocal(surplus + missing);
    }
    if (surplus == 0 || low == 0) return low;
    // Rare: equal magnitudes. Those in the columns before `begin` have room.
    const int first = threadIdx.x * kBlock;
    int begin = 0, end = K;
    while (end - begin > 1) {
        const int middle = (begin + end) / 2, before = middle - first;
        const int equal = count([&](float x, int offset) { return offset < before && fabsf(x) == low ? 1.0f : 0.0f; });
        (row_sum(equal) <= missing ? begin : end) = middle;
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
        for (int j = 0; j < kBlock; ++j) {
            if (fabsf(at[i][j]) == low && offset(i) + j >= begin - first) at[i][j] = 0.0f;
        }
    }
    return low;
}

template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, kWarps == 1 ? 24 : kResidentWarps / kWarps)
    row_kernel(const float* x, int K, int kept, Nvfp4 main, Nvfp4 residual) {
    const int m = blockIdx.x, first = threadIdx.x * kBlock;
    Row<kWarps> row;
    float largest[kBlocks], amax = 0.0f;  // of a block, of the row
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        load_aligned_block(x + static_cast<std::int64_t>(m) * K, first + row.offset(i), K, row.at[i]);
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) amax = fmaxf(amax, largest[i] = amax_of_block(row.at[i]));
    amax = row_max<kWarps>(amax);
    const Outer outer = outer_of(amax);
    if (threadIdx.x == 0) main.outer[m] = outer.decode;

    const Target<kWarps * kWarp> to_main(main, m, K), to_residual(residual, m, K);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) to_main.store(i, K, encode_block(row.at[i], largest[i], outer, row.at[i]));
    float threshold = kept == 0 ? float_from_bits(kInfinity) : 0.0f;
    if (kept > 0 && kept < K && amax > 0.0f) threshold = row.smallest_kept(K, kept, outer);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        if (kept < K) {
#pragma unroll
            for (float& r : row.at[i]) r = __fmaf_rn(r, reaches(r, threshold), 0.0f);  // r or +0
        }
        to_residual.store(i, K, encode_block(row.at[i], amax_of_block(row.at[i]), outer));
    }
}

}  // namespace

void quantize_nvfp4_4_residual(const float* x, int M, int K, float ratio, Nvfp4 main, Nvfp4 residual) {
    check(ratio >= 0.0f && ratio <= 1.0f, "The residual ratio must lie in 0 .. 1, but it is ", ratio, ".");
    if (M == 0) return;
    if (K > kLongestRow || K % 4 != 0) {  // too long for the registers of a thread block, or not aligned
        const Groups unused{nullptr, 0};
        kernels::quantize_nvfp4(x, unused, M, K, main);
        kernels::quantize_nvfp4_residual(x, main, unused, M, K, ratio, ResidualSelection::token, residual);
        return;
    }
    const int warps = K <= kWarpColumns ? 1 : K <= 2 * kWarpColumns ? 2 : K <= 4 * kWarpColumns ? 4 : 8;
    const auto kernel = warps == 1   ? row_kernel<1>
                        : warps == 2 ? row_kernel<2>
                        : warps == 4 ? row_kernel<4>
                                     : row_kernel<8>;
    kernel<<<M, warps * kWarp, 0, stream()>>>(x, K, residual_channels(ratio, K), main, residual);
    CUDA_CHECK_LAUNCH(row_kernel);
}

}  // namespace quads::kernels::ladder
