#include "reference/rmsnorm.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "reference/check.hpp"
#include "reference/codec.hpp"
#include "reference/exact_math.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

constexpr float kEpsilon = 1e-6f;
constexpr int kRowGrain = 256;
constexpr int kColumnGrain = 16;

}  // namespace

void rmsnorm(const float* x, const float* g, int T, int D, float* h, float* rstd) {
    check(D >= 1, "RMSNorm needs a width D of at least 1, but D is ", D, ".");
    parallel_for(T, kRowGrain, [=](int t) {
        const float* row = x + std::size_t(t) * D;
        float* out = h + std::size_t(t) * D;
        float squares = 0.0f;
        for (int d = 0; d < D; ++d) squares = fmaf(row[d], row[d], squares);
        const float r = exact_rsqrt(squares / static_cast<float>(D) + kEpsilon);
        rstd[t] = r;
        for (int d = 0; d < D; ++d) out[d] = bf16_round((row[d] * r) * g[d]);
    });
}

void rmsnorm_backward(const float* dh, const float* x, const float* g, const float* rstd, int T, int D, float* dx,
                      float* dg) {
    check(D >= 1, "RMSNorm needs a width D of at least 1, but D is ", D, ".");
    parallel_for(T, kRowGrain, [=](int t) {
        const float* dh_row = dh + std::size_t(t) * D;
        const float* row = x + std::size_t(t) * D;
        float* out = dx + std::size_t(t) * D;
        float sum = 0.0f;
        for (int d = 0; d < D; ++d) sum = fmaf(dh_row[d] * g[d], row[d], sum);
        const float r = rstd[t];
        const float c = sum * r * r / static_cast<float>(D);
        for (int d = 0; d < D; ++d) out[d] = r * (dh_row[d] * g[d] - row[d] * c);
    });
    // Threads share the columns, so each sum over t stays whole and ascending.
    parallel_ranges(D, kColumnGrain, [=](int begin, int end) {
        std::fill(dg + begin, dg + end, 0.0f);
        for (int t = 0; t < T; ++t) {
            const float* dh_row = dh + std::size_t(t) * D;
            const float* row = x + std::size_t(t) * D;
            const float r = rstd[t];
            for (int d = begin; d < end; ++d) dg[d] = fmaf(dh_row[d], row[d] * r, dg[d]);
        }
    });
}

}  // namespace quads::reference
