// The second pass of residual activation compensation: which channels are kept, then their quantised residual.
// reference/nvfp4.hpp, quantize_nvfp4_residual.
#include "kernels/column_sum.cuh"
#include "kernels/groups.cuh"
#include "kernels/kernels.hpp"
#include "kernels/nvfp4.cuh"
#include "reference/check.hpp"
#include "reference/philox.hpp"

namespace quads::kernels {
namespace {

// r[m,k] = x[m,k] - (q * s) * g, what the main pass lost of one value; m lies in group e.
struct Residual {
    const float* x;
    Nvfp4 main;
    int K;

    __device__ float operator()(int m, int e, int k) const {
        const std::int64_t row = m;
        const float q = e2m1_decode(code_at(main.codes + row * code_bytes_of(K), k));
        const float s = e4m3_decode(main.scales[row * blocks_of(K) + k / kBlock]);
        const float g = main.outer[main.outer_scale == OuterScale::row ? m : e];
        return x[row * K + k] - (q * s) * g;
    }
};

// A channel's key decides whether it is kept: the larger, the sooner. For `batch` there is one row of keys per group.
__global__ void batch_keys_kernel(Residual residual, Groups groups, std::uint32_t* keys) {
    const int e = blockIdx.y;
    const auto terms = [=](int m, int k) {
        const float r = residual(m, e, k);
        return make_float2(r, r);
    };
    column_sums(groups.offsets[e], groups.offsets[e + 1], blockIdx.x * kSumColumns, residual.K, terms,
                [=](int k, float norm) { keys[static_cast<std::int64_t>(e) * residual.K + k] = float_bits(norm); });
}

// For `token` and `random` one row of keys per row.
__global__ void row_keys_kernel(Residual residual, Groups groups, std::int64_t n, bool random, std::uint32_t* keys) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const std::uint32_t m = static_cast<std::uint32_t>(i / residual.K), k = static_cast<std::uint32_t>(i % residual.K);
    keys[i] = random ? philox4x32_10({{m, k, 0, 0}}, 0x52414344u, 0).word[0]
                     : magnitude_bits(residual(m, group_of(groups, m), k));
}

// Replaces the `count` largest keys of each row by 1 and the others by 0; equal keys: the lower index comes first. One
// warp per row finds the smallest kept key bit by bit.
__global__ void mark_largest_kernel(std::uint32_t* keys, int rows, int K, int count) {
    if (global_warp() >= rows) return;
    std::uint32_t* row = keys + static_cast<std::int64_t>(global_warp()) * K;
    std::uint32_t threshold = 0;  // the largest value that at least `count` keys reach
    for (int bit = 31; bit >= 0; --bit) {
        const std::uint32_t candidate = threshold | (1u << bit);
        unsigned reached = 0;
        for (int k = lane_id(); k < K; k += kWarp) reached += row[k] >= candidate;
        if (__reduce_add_sync(kAllLanes, reached) >= static_cast<unsigned>(count)) threshold = candidate;
    }
    unsigned above = 0;
    for (int k = lane_id(); k < K; k += kWarp) above += row[k] > threshold;
    int equal_left = count - static_cast<int>(__reduce_add_sync(kAllLanes, above));
    for (int first = 0; first < K; first += kWarp) {
        const int k = first + lane_id();
        const bool equal = k < K && row[k] == threshold;
        const unsigned equals = __ballot_sync(kAllLanes, equal);
        const int equals_before = __popc(equals & ((1u << lane_id()) - 1u));
        if (k < K) row[k] = row[k] > threshold || (equal && equals_before < equal_left);
        equal_left -= __popc(equals);
    }
}

// One warp per row. `kept` (E or M rows, K), or nullptr where all channels are kept.
__global__ void residual_kernel(Residual residual, Groups groups, int M, const float* amax_of_group,
                                const std::uint32_t* kept, bool kept_by_group, Report report, Nvfp4 out) {
    const int m = global_warp(), K = residual.K;
    if (m >= M) return;
    const int e = group_of(groups, m);
    const Outer outer = outer_of(amax_of_group != nullptr ? amax_of_group[e]
                                                          : row_amax(residual.x, m, K, Trouble::nvfp4_input, report));
    const std::uint32_t* my_kept = kept + static_cast<std::int64_t>(kept_by_group ? e : m) * K;
    const auto value = [&](int k) { return kept == nullptr || my_kept[k] ? residual(m, e, k) : 0.0f; };
    const std::int64_t row = m;
    quantize_row(value, K, outer, out.codes + row * code_bytes_of(K), out.scales + row * blocks_of(K));
}

void mark_kept(Residual residual, Groups groups, int M, int count, ResidualSelection selection, std::uint32_t* kept) {
    const int K = residual.K;
    const bool batch = selection == ResidualSelection::batch;
    if (batch) {
        const dim3 grid(blocks_for(K, kSumColumns), groups.E);
        batch_keys_kernel<<<grid, kSumThreads, 0, stream()>>>(residual, groups, kept);
        CUDA_CHECK_LAUNCH(batch_keys_kernel);
    } else {
        const std::int64_t n = static_cast<std::int64_t>(M) * K;
        row_keys_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(residual, groups, n,
                                                                  selection == ResidualSelection::random, kept);
        CUDA_CHECK_LAUNCH(row_keys_kernel);
    }
    const int rows = batch ? groups.E : M;
    mark_largest_kernel<<<blocks_for(rows, kWarps), kThreads, 0, stream()>>>(kept, rows, K, count);
    CUDA_CHECK_LAUNCH(mark_largest_kernel);
}

}  // namespace

void quantize_nvfp4_residual(const float* x, Nvfp4 main, Groups groups, int M, int K, float ratio,
                             ResidualSelection selection, Nvfp4 residual) {
    check(ratio >= 0.0f && ratio <= 1.0f, "The residual ratio must lie in 0 .. 1, but it is ", ratio, ".");
    check(K >= 1, "NVFP4 needs at least one column, but K is ", K, ". Pass a matrix with columns.");
    if (M == 0) return;
    const Residual lost{x, main, K};
    const bool by_group = main.outer_scale == OuterScale::group;
    const bool kept_by_group = selection == ResidualSelection::batch;
    const int count = residual_channels(ratio, K);

    const Report report = next_report();
    const Scratch<float> amax(by_group ? groups.E : 0);
    if (by_group) group_amax(x, groups, M, K, Trouble::nvfp4_input, report, amax.data());
    const Scratch<std::uint32_t> kept(count < K ? static_cast<std::size_t>(kept_by_group ? groups.E : M) * K : 0);
    if (count < K) mark_kept(lost, groups, M, count, selection, kept.data());
    residual_kernel<<<blocks_for(M, kWarps), kThreads, 0, stream()>>>(
        lost, groups, M, by_group ? amax.data() : nullptr, count < K ? kept.data() : nullptr, kept_by_group, report,
        residual);
    CUDA_CHECK_LAUNCH(residual_kernel);
}

}  // namespace quads::kernels
