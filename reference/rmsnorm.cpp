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
constexpr int kSideBySide = 8;  // rows whose sums run together: one alone would wait for each of its additions

// For the rows begin .. end-1: finish(t, the last of running = term(t, d, running), ascending d, from 0).
template <typename Term, typename Finish>
void reduce_rows(int begin, int end, int D, const Term& term, const Finish& finish) {
    for (int first = begin; first < end; first += kSideBySide) {
        float running[kSideBySide] = {};
        // Beyond the end the last row again, whose sums nobody reads.
        int row[kSideBySide];
        for (int i = 0; i < kSideBySide; ++i) row[i] = std::min(first + i, end - 1);
        for (int d = 0; d < D; ++d) {
            for (int i = 0; i < kSideBySide; ++i) running[i] = term(row[i], d, running[i]);
        }
        for (int t = first; t < std::min(first + kSideBySide, end); ++t) finish(t, running[t - first]);
    }
}

}  // namespace

void rmsnorm(const float* x, const float* g, int T, int D, float* h, float* rstd) {
    check(D >= 1, "RMSNorm needs a width D of at least 1, but D is ", D, ".");
    const auto add_square = [=](int t, int d, float squares) {
        const float value = x[std::size_t(t) * D + d];
        return fmaf(value, value, squares);
    };
    const auto normalise = [=](int t, float squares) {
        const float* row = x + std::size_t(t) * D;
        float* out = h + std::size_t(t) * D;
        const float r = exact_rsqrt(squares / static_cast<float>(D) + kEpsilon);
        rstd[t] = r;
        for (int d = 0; d < D; ++d) out[d] = bf16_round((row[d] * r) * g[d]);
    };
    parallel_ranges(T, kRowGrain, [=](int begin, int end) { reduce_rows(begin, end, D, add_square, normalise); });
}

void rmsnorm_backward(const float* dh, const float* x, const float* g, const float* rstd, int T, int D, float* dx,
                      float* dg) {
    check(D >= 1, "RMSNorm needs a width D of at least 1, but D is ", D, ".");
    const auto add_product = [=](int t, int d, float sum) {
        const std::size_t i = std::size_t(t) * D + d;
        return fmaf(dh[i] * g[d], x[i], sum);
    };
    const auto row_gradient = [=](int t, float sum) {
        const float* dh_row = dh + std::size_t(t) * D;
        const float* row = x + std::size_t(t) * D;
        float* out = dx + std::size_t(t) * D;
        const float r = rstd[t];
        const float c = sum * r * r / static_cast<float>(D);
        for (int d = 0; d < D; ++d) out[d] = r * (dh_row[d] * g[d] - row[d] * c);
    };
    parallel_ranges(T, kRowGrain, [=](int begin, int end) { reduce_rows(begin, end, D, add_product, row_gradient); });
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
