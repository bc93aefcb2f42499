// RMSNorm and its backward: one warp per row; formulas and orders in reference/rmsnorm.hpp.
#include "reference/rmsnorm.hpp"

#include "kernels/column_sum.cuh"
#include "kernels/kernels.hpp"
#include "kernels/warp.cuh"
#include "reference/codec.hpp"
#include "reference/exact_math.hpp"

namespace quads::kernels {
namespace {

__global__ void rmsnorm_kernel(const float* x, const float* g, int T, int D, float* h, float* rstd) {
    const int t = global_warp();
    if (t >= T) return;
    const float* row = x + static_cast<std::int64_t>(t) * D;
    const float ss = ascending_fma(D, [&](int d) { return make_float2(row[d], row[d]); });
    const float r = exact_rsqrt(ss / static_cast<float>(D) + 1e-6f);
    float* out = h + static_cast<std::int64_t>(t) * D;
    for (int d = lane_id(); d < D; d += kWarp) out[d] = bf16_round((row[d] * r) * g[d]);
    if (lane_id() == 0) rstd[t] = r;
}

__global__ void dx_kernel(const float* dh, const float* x, const float* g, const float* rstd, int T, int D, float* dx) {
    const int t = global_warp();
    if (t >= T) return;
    const std::int64_t first = static_cast<std::int64_t>(t) * D;
    const float r = rstd[t];
    const float sum = ascending_fma(D, [&](int d) { return make_float2(dh[first + d] * g[d], x[first + d]); });
    const float c = sum * r * r / static_cast<float>(D);
    for (int d = lane_id(); d < D; d += kWarp) {
        const float u = dh[first + d] * g[d];
        dx[first + d] = r * (u - x[first + d] * c);
    }
}

__global__ void dg_kernel(const float* dh, const float* x, const float* rstd, int T, int D, float* dg) {
    const auto terms = [=](int t, int d) {
        const std::int64_t i = static_cast<std::int64_t>(t) * D + d;
        return make_float2(dh[i], x[i] * rstd[t]);
    };
    column_sums(0, T, blockIdx.x * kSumColumns, D, terms, [=](int d, float sum) { dg[d] = sum; });
}

}  // namespace

void rmsnorm(const float* x, const float* g, int T, int D, float* h, float* rstd) {
    if (T == 0) return;
    rmsnorm_kernel<<<blocks_for(T, kWarps), kThreads, 0, stream()>>>(x, g, T, D, h, rstd);
    CUDA_CHECK_LAUNCH(rmsnorm_kernel);
}

void rmsnorm_backward(const float* dh, const float* x, const float* g, const float* rstd, int T, int D, float* dx,
                      float* dg) {
    if (T > 0) {
        dx_kernel<<<blocks_for(T, kWarps), kThreads, 0, stream()>>>(dh, x, g, rstd, T, D, dx);
        CUDA_CHECK_LAUNCH(dx_kernel);
    }
    dg_kernel<<<blocks_for(D, kSumColumns), kSumThreads, 0, stream()>>>(dh, x, rstd, T, D, dg);
    CUDA_CHECK_LAUNCH(dg_kernel);
}

}  // namespace quads::kernels
