#include "reference/swiglu.hpp"

#include <cmath>

#include "reference/exact_math.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

using namespace quads;

TEST_CASE("swiglu: forward and backward are the header's formulas, bit for bit", "[swiglu]") {
    for (const int R : {1, 15, 16, 17, 33, 300}) {
        for (const int F : {1, 15, 16, 17, 33, 64}) {
            const Floats gate_up = random_floats(R * 2 * F, R + F, 12.0f), dm = random_floats(R * F, R);
            Floats m(R * F), dgate_up(R * 2 * F), m_literal(R * F), dgate_up_literal(R * 2 * F);
            for (int r = 0; r < R; ++r) {
                for (int f = 0; f < F; ++f) {
                    const float z = gate_up[r * 2 * F + f], up = gate_up[r * 2 * F + F + f], d = dm[r * F + f];
                    const float y = exact_sigmoid(z);
                    m_literal[r * F + f] = nearest_bf16((z * y) * up);
                    const float slope = y * (1.0f + z * (1.0f - y));
                    dgate_up_literal[r * 2 * F + f] = (d * up) * slope;
                    dgate_up_literal[r * 2 * F + F + f] = d * (z * y);
                }
            }
            with_one_and_two_threads([&](int) {
                reference::swiglu(gate_up.data(), R, F, m.data());
                reference::swiglu_backward(dm.data(), gate_up.data(), R, F, dgate_up.data());
                REQUIRE_SAME_BITS(m, m_literal);
                REQUIRE_SAME_BITS(dgate_up, dgate_up_literal);
            });
        }
    }
}

TEST_CASE("swiglu: within one BF16 rounding of the double value, from gates of any size", "[swiglu]") {
    const float gates[] = {-200.0f, -90.0f, -10.0f, -1.0f, -0.0f, 0.0f, 1e-3f, 1.0f, 10.0f, 200.0f};
    for (const float gate : gates) {
        const float gate_up[2] = {gate, 3.0f};
        float m;
        reference::swiglu(gate_up, 1, 1, &m);
        const double value = gate / (1.0 + std::exp(-double{gate})) * 3.0;
        REQUIRE(std::fabs(m - value) <= std::fabs(value) * 0x1.01p-8 + 0x1p-120);
    }
}
