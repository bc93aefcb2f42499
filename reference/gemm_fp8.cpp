#include "reference/gemm_fp8.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/amax.hpp"
#include "reference/check.hpp"
#include "reference/codec.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

constexpr int kRowGrain = 16;  // rows worth a thread

// Row m's outer scale; its group is e.
float outer_at(const Fp8& q, std::size_t m, int e) {
    return q.outer_scale == OuterScale::row ? q.outer[m] : q.outer[e];
}

float outer_of(float amax) {
    const float outer = amax / 448.0f;
    return outer == 0.0f ? 1.0f : outer;
}

}  // namespace

void quantize_fp8(const float* x, Groups groups, int M, int K, Fp8 out) {
    const std::vector<float> amax = finite_row_amax(x, M, K, "FP8");
    if (out.outer_scale == OuterScale::row) std::transform(amax.begin(), amax.end(), out.outer, outer_of);
    for (int e = 0; e < groups.E; ++e) {
        const int first = groups.offsets[e], rows = groups.offsets[e + 1] - first;
        if (out.outer_scale == OuterScale::group) {
            out.outer[e] = outer_of(rows == 0 ? 0.0f : *std::max_element(&amax[first], &amax[first] + rows));
        }
        parallel_for(rows, kRowGrain, [&](int i) {
            const std::size_t m = first + i;
            const float outer = outer_at(out, m, e);
            for (int k = 0; k < K; ++k) out.codes[m * K + k] = e4m3_encode(x[m * K + k] / outer);
        });
    }
}

void dequantize_fp8(Fp8 q, Groups groups, int, int K, bool with_outer, float* x) {
    for (int e = 0; e < groups.E; ++e) {
        const int first = groups.offsets[e];
        parallel_for(groups.offsets[e + 1] - first, kRowGrain, [&](int i) {
            const std::size_t m = first + i;
            const float outer = with_outer ? outer_at(q, m, e) : 1.0f;
            for (int k = 0; k < K; ++k) x[m * K + k] = e4m3_decode(q.codes[m * K + k]) * outer;
        });
    }
}

void gemm_fp8(Fp8 x, Fp8 w, Groups groups, int, int N, int K, float* y) {
    check(K >= 1, "An FP8 GEMM needs at least one column, but K is ", K, ". Pass matrices with columns.");
    for (int e = 0; e < groups.E; ++e) {
        const int first = groups.offsets[e];
        parallel_for(groups.offsets[e + 1] - first, 1, [&](int i) {
            const std::size_t m = first + i;
            const float factor = outer_at(x, m, e) * w.outer[e];
            for (int n = 0; n < N; ++n) {
                const std::uint8_t* x_row = x.codes + m * K;
                const std::uint8_t* w_row = w.codes + (static_cast<std::size_t>(e) * N + n) * K;
                float acc = 0.0f;
                for (int k = 0; k < K; ++k) acc += e4m3_decode(x_row[k]) * e4m3_decode(w_row[k]);
                y[m * N + n] = acc * factor;
            }
        });
    }
}

}  // namespace quads::reference
