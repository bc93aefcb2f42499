// FP8 (E4M3) quantise, dequantise and grouped GEMM: reference/gemm_fp8.hpp.
#include "reference/gemm_fp8.hpp"

#include "kernels/amax.cuh"
#include "kernels/gemm_tile.cuh"
#include "kernels/kernels.hpp"
#include "reference/check.hpp"

namespace quads::kernels {
namespace {

__device__ float outer_of(float amax) { return amax == 0.0f ? 1.0f : amax / 448.0f; }

// One warp per row; with group scales the amax is given.
__global__ void quantize_kernel(const float* x, Groups groups, int M, int K, const float* amax_of_group, Report report,
                                Fp8 out) {
    const int m = global_warp();
    if (amax_of_group != nullptr && m < groups.E && lane_id() == 0) out.outer[m] = outer_of(amax_of_group[m]);
    if (m >= M) return;
    const float outer = outer_of(amax_of_group != nullptr ? amax_of_group[group_of(groups, m)]
                                                          : row_amax(x, m, K, Trouble::fp8_input, report));
    if (amax_of_group == nullptr && lane_id() == 0) out.outer[m] = outer;
    const std::int64_t first = static_cast<std::int64_t>(m) * K;
    for (int k = lane_id(); k < K; k += kWarp) out.codes[first + k] = e4m3_encode(x[first + k] / outer);
}

__global__ void dequantize_kernel(Fp8 q, Groups groups, std::int64_t n, int K, bool with_outer, float* x) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int m = static_cast<int>(i / K);
    float outer = 1.0f;
    if (with_outer) outer = q.outer[q.outer_scale == OuterScale::row ? m : group_of(groups, m)];
    x[i] = e4m3_decode(q.codes[i]) * outer;
}

struct Activation {
    const std::uint8_t* codes;  // (M, K)
    int K;
    __device__ float operator()(int m, int k) const { return e4m3_decode(codes[static_cast<std::int64_t>(m) * K + k]); }
};

struct Weight {
    static constexpr bool kSumContiguous = true;
    const std::uint8_t* codes;  // (E * N, K)
    int N, K;
    __device__ float operator()(int e, int n, int k) const {
        return e4m3_decode(codes[(static_cast<std::int64_t>(e) * N + n) * K + k]);
    }
};

struct ScaledOutput {
    float* data;  // (M, N)
    Fp8 x, w;
    int N;
    __device__ void operator()(int m, int n, int e, float acc) const {
        data[static_cast<std::int64_t>(m) * N + n] =
            acc * (x.outer[x.outer_scale == OuterScale::row ? m : e] * w.outer[e]);
    }
};

}  // namespace

void quantize_fp8(const float* x, Groups groups, int M, int K, Fp8 out) {
    check(K >= 1, "FP8 needs at least one column, but K is ", K, ". Pass a matrix with columns.");
    const bool by_group = out.outer_scale == OuterScale::group;
    const Scratch<float> amax(by_group ? groups.E : 0);
    const Report report = next_report();
    if (by_group) group_amax(x, groups, M, K, Trouble::fp8_input, report, amax.data());
    const int warps = by_group && groups.E > M ? groups.E : M;
    if (warps == 0) return;
    quantize_kernel<<<blocks_for(warps, kWarps), kThreads, 0, stream()>>>(
        x, groups, M, K, by_group ? amax.data() : nullptr, report, out);
    CUDA_CHECK_LAUNCH(quantize_kernel);
}

void dequantize_fp8(Fp8 q, Groups groups, int M, int K, bool with_outer, float* x) {
    const std::int64_t n = static_cast<std::int64_t>(M) * K;
    if (n == 0) return;
    dequantize_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(q, groups, n, K, with_outer, x);
    CUDA_CHECK_LAUNCH(dequantize_kernel);
}

void gemm_fp8(Fp8 x, Fp8 w, Groups groups, int M, int N, int K, float* y) {
    check(K >= 1, "An FP8 GEMM needs at least one column, but K is ", K, ". Pass matrices with columns.");
    launch_gemm_tile(Activation{x.codes, K}, Weight{w.codes, N, K}, ScaledOutput{y, x, w, N}, groups, M, N, K);
}

}  // namespace quads::kernels
