#include "reference/amax.hpp"

#include <algorithm>
#include <cmath>

#include "reference/check.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {

std::vector<float> finite_row_amax(const float* x, int M, int K, const char* format) {
    check(K >= 1, format, " needs at least one column, but K is ", K, ". Pass a matrix with columns.");
    std::vector<float> amax(M);
    parallel_for(M, 64, [&](int m) {
        amax[m] = float_from_bits(amax_bits(x + static_cast<std::size_t>(m) * K, K));
    });
    for (int m = 0; m < M; ++m) {
        if (float_bits(amax[m]) < kInfinityBits) continue;
        const float* row = x + static_cast<std::size_t>(m) * K;
        const auto k = std::find_if(row, row + K, [](float v) { return !std::isfinite(v); }) - row;
        fail_non_finite(format, m, static_cast<int>(k), row[k]);
    }
    return amax;
}

void fail_non_finite(const char* format, int row, int column, float value) {
    fail(format, " needs finite values, but row ", row, ", column ", column, " holds ", value,
         ". Remove NaN and Inf from the input.");
}

}  // namespace quads::reference
