// NVFP4 quantise, dequantise and the count of code flips: reference/nvfp4.hpp.
#include "kernels/nvfp4.cuh"

#include "kernels/groups.cuh"
#include "kernels/kernels.hpp"
#include "reference/check.hpp"

namespace quads::kernels {
namespace {

void check_columns(int K) {
    check(K >= 1, "NVFP4 needs at least one column, but K is ", K, ". Pass a matrix with columns.");
}

// One warp per row reads it for the amax and again, from cache, for the codes. With group scales the amax is given.
__global__ void quantize_kernel(const float* x, Groups groups, int M, int K, const float* amax_of_group, Report report,
                                Nvfp4 out) {
    const int m = global_warp();
    if (amax_of_group != nullptr && m < groups.E && lane_id() == 0) out.outer[m] = outer_of(amax_of_group[m]).decode;
    if (m >= M) return;
    const Outer outer = outer_of(amax_of_group != nullptr ? amax_of_group[group_of(groups, m)]
                                                          : row_amax(x, m, K, Trouble::nvfp4_input, report));
    if (amax_of_group == nullptr && lane_id() == 0) out.outer[m] = outer.decode;
    const std::int64_t row = m;
    quantize_row([&](int k) { return x[row * K + k]; }, K, outer, out.codes + row * code_bytes_of(K),
                 out.scales + row * blocks_of(K));
}

__global__ void dequantize_kernel(Nvfp4 q, Groups groups, std::int64_t n, int K, bool with_outer, float* x) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const std::int64_t m = i / K;
    const int k = static_cast<int>(i % K);
    const float value = e2m1_decode(code_at(q.codes + m * code_bytes_of(K), k)) *
                        e4m3_decode(q.scales[m * blocks_of(K) + k / kBlock]);
    float outer = 1.0f;
    if (with_outer) outer = q.outer[q.outer_scale == OuterScale::row ? static_cast<int>(m) : group_of(groups, m)];
    x[i] = value * outer;
}

// One warp per row pair; the lanes count the columns whose codes differ.
__global__ void flips_kernel(const float* a, const float* b, int M, int K, Report report_a, Report report_b,
                             int* flips) {
    const int m = global_warp();
    if (m >= M) return;
    const Outer outer_a = outer_of(row_amax(a, m, K, Trouble::nvfp4_input, report_a));
    const Outer outer_b = outer_of(row_amax(b, m, K, Trouble::nvfp4_input, report_b));
    int count = 0;
    for (int first = 0; first < K; first += kWarp) {
        const int k = first + lane_id();
        const std::int64_t i = static_cast<std::int64_t>(m) * K + k;
        std::uint8_t scale;
        const std::uint8_t code_a = encode_column(k < K ? a[i] : 0.0f, outer_a, &scale);
        const std::uint8_t code_b = encode_column(k < K ? b[i] : 0.0f, outer_b, &scale);
        count += __popc(__ballot_sync(kAllLanes, code_a != code_b));
    }
    if (lane_id() == 0) flips[m] = count;
}

}  // namespace

void quantize_nvfp4(const float* x, Groups groups, int M, int K, Nvfp4 out) {
    check_columns(K);
    const bool by_group = out.outer_scale == OuterScale::group;
    const Scratch<float> amax(by_group ? groups.E : 0);
    const Report report = next_report();
    if (by_group) group_amax(x, groups, M, K, Trouble::nvfp4_input, report, amax.data());
    const int warps = by_group && groups.E > M ? groups.E : M;
    if (warps == 0) return;
    quantize_kernel<<<blocks_for(warps, kWarps), kThreads, 0, stream()>>>(
        x, groups, M, K, by_group ? amax.data() : nullptr, report, out);
    CUDA_CHECK_LAUNCH(quantize_kernel);
}

void dequantize_nvfp4(Nvfp4 q, Groups groups, int M, int K, bool with_outer, float* x) {
    check_columns(K);
    const std::int64_t n = static_cast<std::int64_t>(M) * K;
    if (n == 0) return;
    dequantize_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(q, groups, n, K, with_outer, x);
    CUDA_CHECK_LAUNCH(dequantize_kernel);
}

void count_code_flips(const float* a, const float* b, int M, int K, int* flips) {
    check_columns(K);
    if (M == 0) return;
    const Report report_a = next_report(), report_b = next_report();
    flips_kernel<<<blocks_for(M, kWarps), kThreads, 0, stream()>>>(a, b, M, K, report_a, report_b, flips);
    CUDA_CHECK_LAUNCH(flips_kernel);
}

}  // namespace quads::kernels
