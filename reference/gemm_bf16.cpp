#include "reference/gemm_bf16.hpp"

#include <cmath>

#include "reference/codec.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

// Row-major element (row, column) of a matrix with `columns` columns.
std::size_t at(std::size_t row, std::size_t columns, std::size_t column) { return row * columns + column; }

}  // namespace

void gemm_bf16(const float* x, const float* w, const float* w_outer, Groups groups, int, int N, int K, float* y) {
    for (int e = 0; e < groups.E; ++e) {
        const float factor = w_outer != nullptr ? w_outer[e] : 1.0f;
        const float* matrix = w + at(e, N, 0) * K;
        parallel_for(groups.offsets[e + 1] - groups.offsets[e], 1, [&](int i) {
            const int m = groups.offsets[e] + i;
            for (int n = 0; n < N; ++n) {
                float acc = 0.0f;
                for (int k = 0; k < K; ++k) acc = std::fma(x[at(m, K, k)], matrix[at(n, K, k)], acc);
                y[at(m, N, n)] = acc * factor;
            }
        });
    }
}

void gemm_bf16_backward_input(const float* dy, const float* w, const float* w_outer, Groups groups, int, int N, int K,
                              float* dx) {
    for (int e = 0; e < groups.E; ++e) {
        const float factor = w_outer != nullptr ? w_outer[e] : 1.0f;
        const float* matrix = w + at(e, N, 0) * K;
        parallel_for(groups.offsets[e + 1] - groups.offsets[e], 1, [&](int i) {
            const int m = groups.offsets[e] + i;
            for (int k = 0; k < K; ++k) {
                float acc = 0.0f;
                for (int n = 0; n < N; ++n) acc = std::fma(bf16_round(dy[at(m, N, n)]), matrix[at(n, K, k)], acc);
                dx[at(m, K, k)] = acc * factor;
            }
        });
    }
}

void gemm_bf16_backward_weight(const float* dy, const float* x, Groups groups, int, int N, int K, float* dw) {
    for (int e = 0; e < groups.E; ++e) {
        parallel_for(N, 1, [&](int n) {
            for (int k = 0; k < K; ++k) {
                float acc = 0.0f;
                for (int m = groups.offsets[e]; m < groups.offsets[e + 1]; ++m) {
                    acc = std::fma(bf16_round(dy[at(m, N, n)]), bf16_round(x[at(m, K, k)]), acc);
                }
                dw[at(at(e, N, n), K, k)] = acc;
            }
        });
    }
}

}  // namespace quads::reference
