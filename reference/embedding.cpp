#include "reference/embedding.hpp"

#include <algorithm>
#include <cstddef>

#include "reference/check.hpp"
#include "reference/codec.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

constexpr int kRowGrain = 512;
constexpr int kColumnGrain = 16;
constexpr int kElementGrain = 1 << 15;

template <typename Value>
void scatter(const Value* x, const int* rows, int T, int D, Value* y) {
    parallel_for(T, kRowGrain, [=](int t) {
        check(rows[t] >= 0, "Row ", t, " is to be stored at row ", rows[t], ", but rows count from 0.");
        std::copy_n(x + std::size_t(t) * D, D, y + std::size_t(rows[t]) * D);
    });
}

}  // namespace

void embed(const int* tokens, const int* positions, const float* token_table, const float* position_table, int T, int D,
           bool bf16, float* x) {
    parallel_for(T, kRowGrain, [=](int t) {
        check(tokens[t] >= 0 && positions[t] >= 0, "Tokens and positions count from 0, but row ", t, " has token ",
              tokens[t], " at position ", positions[t], ".");
        const float* token = token_table + std::size_t(tokens[t]) * D;
        const float* position = position_table + std::size_t(positions[t]) * D;
        float* out = x + std::size_t(t) * D;
        for (int d = 0; d < D; ++d) out[d] = token[d] + position[d];
        if (bf16) {
            for (int d = 0; d < D; ++d) out[d] = bf16_round(out[d]);
        }
    });
}

void embed_backward(const float* dx, const int* index, int T, int D, int rows, float* d_table) {
    for (int t = 0; t < T; ++t) {
        check(index[t] >= 0 && index[t] < rows, "The embedding table has rows 0 .. ", rows - 1, ", but index ", t,
              " is ", index[t], ".");
    }
    // Threads share the columns, so each sum over t stays whole and ascending.
    parallel_ranges(D, kColumnGrain, [=](int begin, int end) {
        for (int i = 0; i < rows; ++i) std::fill_n(d_table + std::size_t(i) * D + begin, end - begin, 0.0f);
        for (int t = 0; t < T; ++t) {
            const float* row = dx + std::size_t(t) * D;
            float* sum = d_table + std::size_t(index[t]) * D;
            for (int d = begin; d < end; ++d) sum[d] += row[d];
        }
    });
}

void add(const float* a, const float* b, int n, bool bf16, float* y) {
    parallel_ranges(n, kElementGrain, [=](int begin, int end) {
        if (bf16) {
            for (int i = begin; i < end; ++i) y[i] = bf16_round(a[i] + b[i]);
        } else {
            for (int i = begin; i < end; ++i) y[i] = a[i] + b[i];
        }
    });
}

void round_bf16(const float* x, int n, float* y) {
    parallel_ranges(n, kElementGrain, [=](int begin, int end) {
        for (int i = begin; i < end; ++i) y[i] = bf16_round(x[i]);
    });
}

void scatter_rows(const float* x, const int* rows, int T, int D, float* y) { scatter(x, rows, T, D, y); }

void scatter_rows_int(const int* x, const int* rows, int T, int D, int* y) { scatter(x, rows, T, D, y); }

}  // namespace quads::reference
