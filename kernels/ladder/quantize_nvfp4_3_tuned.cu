// Quantise, rung 3. A thread block per row; a thread loads a whole scale block as four 16-byte loads, keeps it in
// registers between the amax of the row and the codes, so that x is read once, and writes 16 codes as one 8-byte word.
// The hardware converts scales, one rounding addition finds a code, and its conversion to FP8 packs two at a time.
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/ladder/quantize_row.cuh"

namespace quads::kernels::ladder {
namespace {

constexpr int kRowThreads = 128, kRowStep = kRowThreads * kBlock;  // threads of a row, and columns they hold at a time

// Largest magnitude of each group, as bits: non-negative floats order like their bits.
__global__ void __launch_bounds__(kRowThreads)
    group_amax_kernel(const float* x, Groups groups, int K, unsigned* amax_bits) {
    const int m = blockIdx.x;
    float amax = 0.0f, value[kBlock];
    for (int k = threadIdx.x * kBlock; k < K; k += kRowStep) {
        load_block(x + static_cast<std::int64_t>(m) * K, k, K, value);
        amax = fmaxf(amax, amax_of_block(value));
    }
    amax = row_max<kRowThreads / kWarp>(amax);
    if (threadIdx.x == 0) atomicMax(&amax_bits[group_of(groups, m)], float_bits(amax));
}

__global__ void group_outer_kernel(const unsigned* amax_bits, int E, float* outer) {
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e < E) outer[e] = outer_of(float_from_bits(amax_bits[e])).decode;
}

// kSteps * kRowStep columns are kept in registers; with 0 the row is read twice, which allows any length.
template <int kSteps>
__global__ void __launch_bounds__(kRowThreads)
    row_kernel(const float* x, Groups groups, int K, const unsigned* amax_bits, Nvfp4 out) {
    const int m = blockIdx.x, first = threadIdx.x * kBlock;
    const float* row = x + static_cast<std::int64_t>(m) * K;
    float kept[kSteps > 0 ? kSteps : 1][kBlock], amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) load_block(row, first + i * kRowStep, K, kept[i]);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) amax = fmaxf(amax, amax_of_block(kept[i]));
    for (int k = first; kSteps == 0 && amax_bits == nullptr && k < K; k += kRowStep) {
        load_block(row, k, K, kept[0]);
        amax = fmaxf(amax, amax_of_block(kept[0]));
    }
    const Outer outer = outer_of(amax_bits == nullptr ? row_max<kRowThreads / kWarp>(amax)
                                                      : float_from_bits(amax_bits[group_of(groups, m)]));
    if (amax_bits == nullptr && threadIdx.x == 0) out.outer[m] = outer.decode;

    const Target<kRowThreads> target(out, m, K);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) target.store(i, K, encode_block(kept[i], amax_of_block(kept[i]), outer));
    for (int i = 0; kSteps == 0 && i * kRowStep < K; ++i) {
        load_block(row, first + i * kRowStep, K, kept[0]);
        target.store(i, K, encode_block(kept[0], amax_of_block(kept[0]), outer));
    }
}

}  // namespace

void quantize_nvfp4_3_tuned(const float* x, Groups groups, int M, int K, Nvfp4 out) {
    const bool by_group = out.outer_scale == OuterScale::group;
    const Scratch<unsigned> amax_bits(by_group ? groups.E : 0);
    if (by_group) {
        CUDA_CHECK(cudaMemsetAsync(amax_bits.data(), 0, groups.E * sizeof(unsigned), stream()));
        if (M > 0) group_amax_kernel<<<M, kRowThreads, 0, stream()>>>(x, groups, K, amax_bits.data());
        group_outer_kernel<<<blocks_for(groups.E), kThreads, 0, stream()>>>(amax_bits.data(), groups.E, out.outer);
        CUDA_CHECK_LAUNCH(group_outer_kernel);
    }
    if (M == 0) return;
    const auto kernel = K <= kRowStep       ? row_kernel<1>
                        : K <= 2 * kRowStep ? row_kernel<2>
                        : K <= 4 * kRowStep ? row_kernel<4>
                                            : row_kernel<0>;
    kernel<<<M, kRowThreads, 0, stream()>>>(x, groups, K, by_group ? amax_bits.data() : nullptr, out);
    CUDA_CHECK_LAUNCH(row_kernel);
}

}  // namespace quads::kernels::ladder
