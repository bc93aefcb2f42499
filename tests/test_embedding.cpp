#include "reference/embedding.hpp"

#include <random>

#include "reference/check.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

using namespace quads;

namespace {

Ints random_ints(int n, int below, std::uint32_t seed) {
    std::mt19937 words(seed);
    Ints x(n);
    for (int& value : x) value = static_cast<int>(words() % below);
    return x;
}

}  // namespace

TEST_CASE("embedding: token plus position, rounded where asked", "[embed]") {
    const int V = 7, P = 9;
    for (const int T : {1, 15, 16, 17, 33, 1100}) {
        for (const int D : {1, 15, 16, 17, 33}) {
            const Floats tokens_table = random_floats(V * D, 1), positions_table = random_floats(P * D, 2);
            const Ints tokens = random_ints(T, V, 3), positions = random_ints(T, P, 4);
            for (const bool bf16 : {false, true}) {
                Floats x(T * D), literal(T * D);
                for (int i = 0; i < T * D; ++i) {
                    const int t = i / D, d = i % D;
                    literal[i] = tokens_table[tokens[t] * D + d] + positions_table[positions[t] * D + d];
                    if (bf16) literal[i] = nearest_bf16(literal[i]);
                }
                with_one_and_two_threads([&](int) {
                    reference::embed(tokens.data(), positions.data(), tokens_table.data(), positions_table.data(), T, D,
                                     bf16, x.data());
                    REQUIRE_SAME_BITS(x, literal);
                });
            }
        }
    }
    const int wrong = -1, zero = 0;
    const float table = 1.0f;
    float x;
    REQUIRE_THROWS_AS(reference::embed(&wrong, &zero, &table, &table, 1, 1, false, &x), Error);
}

TEST_CASE("embedding: the backward adds rows in ascending order and clears unused ones", "[embed]") {
    for (const int T : {1, 15, 16, 17, 33, 500}) {
        for (const int D : {1, 15, 16, 17, 33}) {
            const int rows = 6;
            Ints index = random_ints(T, rows - 1, T);  // row 5 is never used
            const Floats dx = random_floats(T * D, D, 1e4f);
            Floats literal(rows * D, 0.0f);
            for (int i = 0; i < rows; ++i) {
                for (int t = 0; t < T; ++t) {
                    for (int d = 0; d < D && index[t] == i; ++d) literal[i * D + d] += dx[t * D + d];
                }
            }
            with_one_and_two_threads([&](int) {
                Floats d_table(rows * D, NAN);
                reference::embed_backward(dx.data(), index.data(), T, D, rows, d_table.data());
                REQUIRE_SAME_BITS(d_table, literal);
            });
            index[T / 2] = rows;
            Floats d_table(rows * D);
            REQUIRE_THROWS_AS(reference::embed_backward(dx.data(), index.data(), T, D, rows, d_table.data()), Error);
        }
    }
}

// 1e8 + 1 rounds the 1 away: ascending order gives 0, 0 and 1, others differ.
TEST_CASE("embedding: the order of the backward's sum shows in its result", "[embed]") {
    const Floats dx = {1e8f, 1.0f, -1e8f, /**/ 1.0f, 1e8f, -1e8f, /**/ 1e8f, -1e8f, 1.0f};
    const Ints index = {0, 0, 0, 1, 1, 1, 2, 2, 2};
    Floats d_table(3);
    reference::embed_backward(dx.data(), index.data(), 9, 1, 3, d_table.data());
    REQUIRE_SAME_BITS(d_table, (Floats{0.0f, 0.0f, 1.0f}));
}

TEST_CASE("embedding: add and round_bf16, also in place", "[embed]") {
    for (const int n : {1, 15, 16, 17, 33, 100000}) {
        const Floats a = random_floats(n, 1), b = random_floats(n, 2);
        Floats sum(n), y(n);
        for (int i = 0; i < n; ++i) sum[i] = a[i] + b[i];
        with_one_and_two_threads([&](int) {
            reference::add(a.data(), b.data(), n, false, y.data());
            REQUIRE_SAME_BITS(y, sum);
            y = a;
            reference::add(y.data(), b.data(), n, true, y.data());
            REQUIRE_SAME_BITS(y, nearest_bf16(sum));
            y = b;
            reference::add(a.data(), y.data(), n, true, y.data());
            REQUIRE_SAME_BITS(y, nearest_bf16(sum));
            y = a;
            reference::round_bf16(y.data(), n, y.data());
            REQUIRE_SAME_BITS(y, nearest_bf16(a));
        });
    }
}

TEST_CASE("embedding: scatter_rows writes the given rows and no others", "[scatter_rows]") {
    const int D = 17;
    const Ints rows = {4, 0, 5};
    const Floats x = random_floats(3 * D, 1);
    Floats y(7 * D, -1.0f), expected = y;
    Ints counts(7 * D, -1), expected_counts = counts, x_counts(3 * D);
    for (int i = 0; i < 3 * D; ++i) {
        x_counts[i] = i;
        expected[rows[i / D] * D + i % D] = x[i];
        expected_counts[rows[i / D] * D + i % D] = i;
    }
    reference::scatter_rows(x.data(), rows.data(), 3, D, y.data());
    reference::scatter_rows_int(x_counts.data(), rows.data(), 3, D, counts.data());
    REQUIRE_SAME_BITS(y, expected);
    REQUIRE(counts == expected_counts);
}
