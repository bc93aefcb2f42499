#include "notebooks/labs/adapter.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

namespace {

// Small integers: exact in BF16, and so are all sums here.
Floats integers(std::size_t n, std::uint32_t seed) {
    Floats x = random_floats(n, seed, 4.0f);
    for (float& value : x) value = std::nearbyint(value);
    return x;
}

// sum of dy * y for y = outer * (x times w), in double.
double loss(const Floats& dy, const Floats& x, const Floats& w, double outer, int M, int N, int K) {
    double sum = 0;
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            for (int k = 0; k < K; ++k) sum += outer * dy[m * N + n] * x[m * K + k] * w[n * K + k];
        }
    }
    return sum;
}

}  // namespace

TEST_CASE("1. dx is the derivative of the loss", "[lab06]") {
    const int M = 3, N = 4, K = 5;
    const Floats dy = integers(M * N, 1), w = integers(N * K, 2);
    Floats x = integers(M * K, 3), dx(M * K, NAN);
    lab::backward_input(dy.data(), w.data(), 0.5f, M, N, K, dx.data());
    const double before = loss(dy, x, w, 0.5, M, N, K);
    for (int i = 0; i < M * K; ++i) {
        x[i] += 1;
        INFO("element " << i);
        REQUIRE(loss(dy, x, w, 0.5, M, N, K) - before == dx[i]);  // linear: a step of 1 is exact
        x[i] -= 1;
    }
}

TEST_CASE("2. dw is the derivative of the loss, straight through the quantiser", "[lab06]") {
    const int M = 3, N = 4, K = 5;
    const Floats dy = integers(M * N, 4), x = integers(M * K, 5);
    Floats w = integers(N * K, 6), dw(N * K, NAN);
    lab::backward_weight(dy.data(), x.data(), M, N, K, dw.data());
    const double before = loss(dy, x, w, 1.0, M, N, K);
    for (int i = 0; i < N * K; ++i) {
        w[i] += 1;
        INFO("element " << i);
        REQUIRE(loss(dy, x, w, 1.0, M, N, K) - before == dw[i]);
        w[i] -= 1;
    }
}

TEST_CASE("3. dy is rounded to BF16, and so is x of the weight's gradient", "[lab06]") {
    const float fine = 1.0f + 0x1p-9f, one = 1.0f;  // not a BF16 value: rounds to 1
    float dx = NAN, dw = NAN;
    lab::backward_input(&fine, &one, 1.0f, 1, 1, 1, &dx);
    lab::backward_weight(&fine, &fine, 1, 1, 1, &dw);
    REQUIRE_SAME_BITS((Floats{dx, dw}), (Floats{1.0f, 1.0f}));
}

TEST_CASE("4. sums ascend, and the outer scale comes after them", "[lab06]") {
    // 2^24 + 1 - 2^24 is 0 in this order.
    const Floats dy{0x1p24f, 1.0f, -0x1p24f}, ones(3, 1.0f);
    float dx = NAN, dw = NAN;
    lab::backward_input(dy.data(), ones.data(), 3.0f, 1, 3, 1, &dx);
    lab::backward_weight(dy.data(), ones.data(), 3, 1, 1, &dw);
    REQUIRE_SAME_BITS((Floats{dx, dw}), (Floats{0.0f, 0.0f}));
    const Floats thirds{1.0f, 1.0f}, weights{0x1.02p0f, 0x1p-24f};  // the factor does not commute with the rounding
    lab::backward_input(thirds.data(), weights.data(), 0.1f, 1, 2, 1, &dx);
    REQUIRE_SAME_BITS(Floats{dx}, Floats{(0x1.02p0f + 0x1p-24f) * 0.1f});
}

TEST_CASE("5. both gradients have the bits of the reference", "[lab06]") {
    const int M = 17, N = 9, K = 33;
    const Floats dy = random_floats(M * N, 7), x = random_floats(M * K, 8), w = random_bf16(N * K, 9);
    Floats dx(M * K, NAN), dw(N * K, NAN), dx_expected(M * K), dw_expected(N * K);
    const float outer = 0.37f;
    lab::backward_input(dy.data(), w.data(), outer, M, N, K, dx.data());
    lab::backward_weight(dy.data(), x.data(), M, N, K, dw.data());
    quads::reference::gemm_bf16_backward_input(dy.data(), w.data(), &outer, lab::Dense(M), M, N, K, dx_expected.data());
    quads::reference::gemm_bf16_backward_weight(dy.data(), x.data(), lab::Dense(M), M, N, K, dw_expected.data());
    REQUIRE_SAME_BITS(dx, dx_expected);
    REQUIRE_SAME_BITS(dw, dw_expected);
}
