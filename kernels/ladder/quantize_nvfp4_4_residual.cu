// Quantise, rung 4: main pass and residual in one kernel. A row stays in registers from its load to both sets of codes: the
// main codes, the residual r = x - (q s) g, the choice of the channels to keep, and the codes of r. Apart, the two passes
// would read x three times and write r.
//
// The kept channels are the `count` largest |r| of the row, the lower index first among equals. A radix select finds the
// smallest kept key: three histograms over its 11, 10 and 10 highest bits, each counting only what the one before left open.
#include "kernels/device.hpp"
#include "kernels/kernels.hpp"
#include "kernels/ladder/ladder.hpp"
#include "kernels/ladder/quantize_row.cuh"
#include "reference/check.hpp"

namespace quads::kernels::ladder {
namespace {

constexpr int kBins = 2048, kBinsPerThread = kBins / kRowThreads;

// A histogram with one word of padding per thread's bins, so that threads that walk through theirs meet no bank conflict.
struct Histogram {
    int counts[kBins + kRowThreads];

    __device__ int& operator[](int bin) { return counts[bin + bin / kBinsPerThread]; }
};

// Sum of `mine` over this thread and all before it. Ends with a barrier.
__device__ int inclusive_sum(int mine) {
    __shared__ int of_warp[kRowThreads / kWarp];
    for (int distance = 1; distance < kWarp; distance *= 2) {
        const int before = __shfl_up_sync(kAllLanes, mine, distance);
        if (lane_id() >= distance) mine += before;
    }
    if (lane_id() == kWarp - 1) of_warp[threadIdx.x / kWarp] = mine;
    __syncthreads();
    for (int warp = 0; warp < static_cast<int>(threadIdx.x) / kWarp; ++warp) mine += of_warp[warp];
    __syncthreads();
    return mine;
}

// Sum over the thread block; every thread gets it.
__device__ int block_sum(int mine) {
    __shared__ int total;
    const int through = inclusive_sum(mine);
    if (threadIdx.x == kRowThreads - 1) total = through;
    __syncthreads();
    return total;
}

// Where the search stands: the high bits of the smallest kept key, and how many of the keys with these bits are kept.
struct Selection {
    std::uint32_t prefix;
    int keep, found;  // found: keys with this prefix
};

// Extends the prefix by the bits from `shift` on. visit(add) calls add(key) for every key of this thread.
template <typename Visit>
__device__ Selection refine(Selection before, int shift, int bits, Histogram& histogram, Visit visit) {
    __shared__ Selection after;
    for (int i = threadIdx.x; i < 1 << bits; i += kRowThreads) histogram[i] = 0;
    __syncthreads();
    visit([&](std::uint32_t key) {
        // The first digit has no bits above it to compare.
        if (shift + bits == 31 || key >> (shift + bits) == before.prefix) {
            atomicAdd(&histogram[key >> shift & ((1u << bits) - 1u)], 1);
        }
    });
    __syncthreads();
    // Thread 0 takes the highest bins, so that a sum over threads counts from the largest key down.
    const int top = (1 << bits) - 1 - static_cast<int>(threadIdx.x) * kBinsPerThread;
    int mine = 0;
    for (int i = 0; i < kBinsPerThread; ++i) mine += top - i >= 0 ? histogram[top - i] : 0;
    int above = inclusive_sum(mine) - mine;
    const bool in_here = above < before.keep && before.keep <= above + mine;
    for (int i = 0; in_here && i < kBinsPerThread && top - i >= 0; ++i) {
        const int here = histogram[top - i];
        if (above < before.keep && before.keep <= above + here) {
            after = {before.prefix << bits | static_cast<std::uint32_t>(top - i), before.keep - above, here};
        }
        above += here;
    }
    __syncthreads();
    return after;
}

// Sets all but the `count` largest magnitudes of the row to +0, 0 < count < K.
template <int kSteps>
__device__ void keep_largest(float (&r)[kSteps][kPerThread], int K, int count) {
    __shared__ Histogram histogram;
    const int first = threadIdx.x * kPerThread;
    const auto visit = [&](auto add) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
#pragma unroll
            for (int j = 0; j < kPerThread; ++j) {
                if (first + i * kRowStep + j < K) add(magnitude_bits(r[i][j]));
            }
        }
    };
    Selection selection{0, count, 0};
    selection = refine(selection, 20, 11, histogram, visit);
    selection = refine(selection, 10, 10, histogram, visit);
    selection = refine(selection, 0, 10, histogram, visit);
    const std::uint32_t threshold = selection.prefix;
    const bool crowded = selection.keep < selection.found;  // more equal keys than room: their order decides
    int room = selection.keep;                              // left for equal keys of this and later steps
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
        int equal = 0;  // keys like the threshold in earlier columns of this step
        if (crowded) {
            int mine = 0;
#pragma unroll
            for (int j = 0; j < kPerThread; ++j) {
                mine += first + i * kRowStep + j < K && magnitude_bits(r[i][j]) == threshold;
            }
            equal = inclusive_sum(mine) - mine;
        }
        int kept_equal = 0;
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
            const std::uint32_t key = magnitude_bits(r[i][j]);
            const bool ties = first + i * kRowStep + j < K && key == threshold;
            const bool kept = key > threshold || (ties && (!crowded || equal < room));
            equal += ties;
            kept_equal += ties && kept;
            if (!kept) r[i][j] = 0.0f;
        }
        if (crowded) room -= block_sum(kept_equal);
    }
}

template <int kSteps>
__global__ void __launch_bounds__(kRowThreads) row_kernel(const float* x, int K, int count, Nvfp4 main, Nvfp4 residual) {
    const int m = blockIdx.x, blocks = blocks_of(K), first = threadIdx.x * kPerThread;
    const std::int64_t code_row = static_cast<std::int64_t>(m) * code_bytes_of(K), scale_row = static_cast<std::int64_t>(m) * blocks;
    float r[kSteps][kPerThread], amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) load_eight(x + static_cast<std::int64_t>(m) * K, first + i * kRowStep, K, r[i]);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) amax = fmaxf(amax, amax_of_eight(r[i]));
    const Outer outer = outer_of(row_max(amax));
    if (threadIdx.x == 0) main.outer[m] = outer.decode;

#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
        store_eight(encode_eight(r[i], outer, r[i]), first + i * kRowStep, blocks, main.codes + code_row, main.scales + scale_row);
    }
    if (count == 0) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
#pragma unroll
            for (int j = 0; j < kPerThread; ++j) r[i][j] = 0.0f;
        }
    } else if (count < K) {
        keep_largest(r, K, count);
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
        store_eight(encode_eight(r[i], outer), first + i * kRowStep, blocks, residual.codes + code_row, residual.scales + scale_row);
    }
}

}  // namespace

void quantize_nvfp4_4_residual(const float* x, int M, int K, float ratio, Nvfp4 main, Nvfp4 residual) {
    check(ratio >= 0.0f && ratio <= 1.0f, "The residual ratio must lie in 0 .. 1, but it is ", ratio, ".");
    if (M == 0) return;
    if (K > 8 * kRowStep) {  // no room in the registers of a thread block
        const Groups unused{nullptr, 0};
        kernels::quantize_nvfp4(x, unused, M, K, main);
        kernels::quantize_nvfp4_residual(x, main, unused, M, K, ratio, ResidualSelection::token, residual);
        return;
    }
    const auto kernel = K <= kRowStep       ? row_kernel<1>
                        : K <= 2 * kRowStep ? row_kernel<2>
                        : K <= 4 * kRowStep ? row_kernel<4>
                                            : row_kernel<8>;
    kernel<<<M, kRowThreads, 0, stream()>>>(x, K, residual_channels(ratio, K), main, residual);
    CUDA_CHECK_LAUNCH(row_kernel);
}

}  // namespace quads::kernels::ladder
