// Quantise, rung 4: main pass and residual in one kernel. A row stays in registers from its load to both sets of codes:
// the main codes, the residual r = x - (q s) g, the choice of the channels to keep, and the codes of r. Apart, the two
// passes would read x three times and write r.
//
// The kept channels are the `count` largest |r| of the row, the lower index first among equals. The smallest kept key
// is found bit by bit: each step counts the keys that reach a candidate. They stay in registers, so a step costs two
// instructions a key and one barrier; shared-memory histograms took longer, because most keys fall into few bins.
#include "kernels/device.hpp"
#include "kernels/kernels.hpp"
#include "kernels/ladder/ladder.hpp"
#include "kernels/ladder/quantize_row.cuh"
#include "reference/check.hpp"

namespace quads::kernels::ladder {
namespace {

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

// Sets all but the `count` largest magnitudes of the row to +0, 0 < count < K. What lies beyond the row is 0.
template <int kSteps>
__device__ void keep_largest(float (&r)[kSteps][kPerThread], int K, int count) {
    __shared__ int of_warp[2][kRowThreads / kWarp];  // two, so that one barrier a step suffices
    std::uint32_t threshold = 0;                     // the largest value that at least `count` keys reach
    int reached = kSteps * kRowStep;
    for (int bit = 30; bit >= 0 && reached != count; --bit) {
        const std::uint32_t candidate = threshold | 1u << bit;
        int mine = 0;
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
#pragma unroll
            for (int j = 0; j < kPerThread; ++j) mine += magnitude_bits(r[i][j]) >= candidate;
        }
        mine = __reduce_add_sync(kAllLanes, mine);
        if (lane_id() == 0) of_warp[bit % 2][threadIdx.x / kWarp] = mine;
        __syncthreads();
        int reach_candidate = 0;
        for (int warp = 0; warp < kRowThreads / kWarp; ++warp) reach_candidate += of_warp[bit % 2][warp];
        if (reach_candidate < count) continue;
        threshold = candidate;
        reached = reach_candidate;
    }
    int room = count;  // for keys like the threshold, where more of them reached it than there is room for
    const bool crowded = reached > count;
    if (crowded) {
        int above = 0;
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
#pragma unroll
            for (int j = 0; j < kPerThread; ++j) above += magnitude_bits(r[i][j]) > threshold;
        }
        room -= block_sum(above);
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
        const int first = threadIdx.x * kPerThread + i * kRowStep;
        int before = 0, total = 0;  // keys like the threshold in earlier columns of this step, and in all of them
        if (crowded) {
            int mine = 0;
#pragma unroll
            for (int j = 0; j < kPerThread; ++j) mine += first + j < K && magnitude_bits(r[i][j]) == threshold;
            before = inclusive_sum(mine) - mine;
            total = block_sum(mine);
        }
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
            const std::uint32_t key = magnitude_bits(r[i][j]);
            const bool equal = first + j < K && key == threshold;
            if (!(key > threshold || (equal && (!crowded || before < room)))) r[i][j] = 0.0f;
            before += equal;
        }
        room -= total;
    }
}

template <int kSteps>
__global__ void __launch_bounds__(kRowThreads)
    row_kernel(const float* x, int K, int count, Nvfp4 main, Nvfp4 residual) {
    const int m = blockIdx.x, blocks = blocks_of(K), first = threadIdx.x * kPerThread;
    const std::int64_t code_row = static_cast<std::int64_t>(m) * code_bytes_of(K),
                       scale_row = static_cast<std::int64_t>(m) * blocks;
    float r[kSteps][kPerThread], amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) load_eight(x + static_cast<std::int64_t>(m) * K, first + i * kRowStep, K, r[i]);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) amax = fmaxf(amax, amax_of_eight(r[i]));
    const Outer outer = outer_of(row_max(amax));
    if (threadIdx.x == 0) main.outer[m] = outer.decode;

#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
        store_eight(encode_eight(r[i], outer, r[i]), first + i * kRowStep, blocks, main.codes + code_row,
                    main.scales + scale_row);
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
        store_eight(encode_eight(r[i], outer), first + i * kRowStep, blocks, residual.codes + code_row,
                    residual.scales + scale_row);
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
