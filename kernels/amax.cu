#include "kernels/amax.cuh"

#include "kernels/groups.cuh"

namespace quads::kernels {
namespace {

// One warp per row. A maximum has no order, so atomics keep the bits; magnitudes compare as integers.
__global__ void group_amax_kernel(const float* x, Groups groups, int M, int K, Trouble trouble, Report report,
                                  float* amax) {
    const int m = global_warp();
    if (m >= M) return;
    const float largest = row_amax(x, m, K, trouble, report);
    if (lane_id() == 0) atomicMax(reinterpret_cast<int*>(amax) + group_of(groups, m), __float_as_int(largest));
}

}  // namespace

void group_amax(const float* x, Groups groups, int M, int K, Trouble trouble, Report report, float* amax) {
    CUDA_CHECK(cudaMemsetAsync(amax, 0, groups.E * sizeof(float), stream()));
    if (M == 0) return;
    group_amax_kernel<<<blocks_for(M, kWarps), kThreads, 0, stream()>>>(x, groups, M, K, trouble, report, amax);
    CUDA_CHECK_LAUNCH(group_amax_kernel);
}

}  // namespace quads::kernels
