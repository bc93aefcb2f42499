#include "reference/rmsnorm.hpp"

#include <cmath>

#include "reference/check.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

using namespace quads;

namespace {

// The header's formulas, one output at a time.
void literal_forward(const Floats& x, const Floats& g, int T, int D, Floats& h, Floats& rstd) {
    for (int t = 0; t < T; ++t) {
        float ss = 0.0f;
        for (int d = 0; d < D; ++d) ss = std::fma(x[t * D + d], x[t * D + d], ss);
        rstd[t] = 1.0f / std::sqrt(ss / D + 1e-6f);
        for (int d = 0; d < D; ++d) h[t * D + d] = nearest_bf16((x[t * D + d] * rstd[t]) * g[d]);
    }
}

void literal_backward(const Floats& dh, const Floats& x, const Floats& g, const Floats& rstd, int T, int D, Floats& dx,
                      Floats& dg) {
    for (int t = 0; t < T; ++t) {
        float sum = 0.0f;
        for (int d = 0; d < D; ++d) {
            const float u = dh[t * D + d] * g[d];
            sum = std::fma(u, x[t * D + d], sum);
        }
        const float c = ((sum * rstd[t]) * rstd[t]) / D;
        for (int d = 0; d < D; ++d) {
            const float u = dh[t * D + d] * g[d];
            const float xc = x[t * D + d] * c;
            dx[t * D + d] = rstd[t] * (u - xc);
        }
    }
    for (int d = 0; d < D; ++d) {
        dg[d] = 0.0f;
        for (int t = 0; t < T; ++t) dg[d] = std::fma(dh[t * D + d], x[t * D + d] * rstd[t], dg[d]);
    }
}

}  // namespace

TEST_CASE("rmsnorm: forward and backward are the header's formulas, bit for bit", "[rmsnorm]") {
    // 4000 rows because a last bit of FP32 survives the rounding to BF16 about once in 2^15 elements.
    for (const int T : {1, 15, 16, 17, 33, 4000}) {
        for (const int D : {1, 15, 16, 17, 33, 64}) {
            const Floats x = random_floats(T * D, T + D, 3.0f), g = random_floats(D, D), dh = random_floats(T * D, T);
            Floats h(T * D), rstd(T), dx(T * D), dg(D);
            Floats h_literal(T * D), rstd_literal(T), dx_literal(T * D), dg_literal(D);
            literal_forward(x, g, T, D, h_literal, rstd_literal);
            literal_backward(dh, x, g, rstd_literal, T, D, dx_literal, dg_literal);
            with_one_and_two_threads([&](int) {
                reference::rmsnorm(x.data(), g.data(), T, D, h.data(), rstd.data());
                reference::rmsnorm_backward(dh.data(), x.data(), g.data(), rstd.data(), T, D, dx.data(), dg.data());
                REQUIRE_SAME_BITS(h, h_literal);
                REQUIRE_SAME_BITS(rstd, rstd_literal);
                REQUIRE_SAME_BITS(dx, dx_literal);
                REQUIRE_SAME_BITS(dg, dg_literal);
            });
        }
    }
}

TEST_CASE("rmsnorm: normalises to the root mean square", "[rmsnorm]") {
    const int T = 17, D = 64;
    const Floats x = random_floats(T * D, 1, 5.0f), g(D, 1.0f);
    Floats h(T * D), rstd(T);
    reference::rmsnorm(x.data(), g.data(), T, D, h.data(), rstd.data());
    for (int t = 0; t < T; ++t) {
        double squares = 0.0;
        for (int d = 0; d < D; ++d) squares += double{h[t * D + d]} * h[t * D + d];
        REQUIRE(std::fabs(squares / D - 1.0) < 0x1p-7);  // each h is within 2^-8 of its value, relatively
    }
}

TEST_CASE("rmsnorm: a zero row stays zero, and D = 0 is refused", "[rmsnorm]") {
    const Floats x(16, 0.0f), g(16, 2.0f);
    Floats h(16), rstd(1);
    reference::rmsnorm(x.data(), g.data(), 1, 16, h.data(), rstd.data());
    REQUIRE_SAME_BITS(h, x);
    REQUIRE_THROWS_AS(reference::rmsnorm(x.data(), g.data(), 1, 0, h.data(), rstd.data()), Error);
}
