#include "reference/adamw.hpp"

#include <cmath>

#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

using namespace quads;

namespace {

AdamwStep step_at(int t) {
    return {3e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f - std::pow(0.9f, float(t)), 1.0f - std::pow(0.95f, float(t)), 0.75f};
}

// The header's text: chunks of 256, then chunks of their sums.
float literal_sum_squares(const Floats& x) {
    Floats level;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (i % 256 == 0) level.push_back(0.0f);
        level.back() = std::fma(x[i], x[i], level.back());
    }
    while (level.size() > 1) {
        Floats next;
        for (std::size_t i = 0; i < level.size(); ++i) {
            if (i % 256 == 0) next.push_back(0.0f);
            next.back() += level[i];
        }
        level = next;
    }
    return level.empty() ? 0.0f : level[0];
}

}  // namespace

TEST_CASE("adamw: three steps are the header's formulas, bit for bit", "[adamw]") {
    for (const int n : {1, 15, 16, 17, 33, 20000}) {
        with_one_and_two_threads([&](int) {
            Floats w = random_floats(n, 1), m(n, 0.0f), v(n, 0.0f);
            Floats w_literal = w, m_literal = m, v_literal = v;
            for (int t = 1; t <= 3; ++t) {
                const AdamwStep s = step_at(t);
                const Floats grad = random_floats(n, 10 + t, 0.1f);
                for (int i = 0; i < n; ++i) {
                    const float g = grad[i] * s.gradient_scale;
                    const float m_kept = s.beta1 * m_literal[i], m_new = (1.0f - s.beta1) * g;
                    m_literal[i] = m_kept + m_new;
                    const float v_kept = s.beta2 * v_literal[i], v_new = (1.0f - s.beta2) * (g * g);
                    v_literal[i] = v_kept + v_new;
                    const float direction =
                        (m_literal[i] / s.correction1) / (std::sqrt(v_literal[i] / s.correction2) + s.epsilon);
                    const float decay = s.weight_decay * w_literal[i];
                    w_literal[i] = w_literal[i] - s.learning_rate * (direction + decay);
                }
                reference::adamw(w.data(), grad.data(), m.data(), v.data(), n, s);
            }
            REQUIRE_SAME_BITS(w, w_literal);
            REQUIRE_SAME_BITS(m, m_literal);
            REQUIRE_SAME_BITS(v, v_literal);
        });
    }
}

// The change of a weight is rounded about ten times, the weight once: 2 units of the larger of the two bound the error.
TEST_CASE("adamw: one step is within 2 units in the last place of double arithmetic", "[adamw]") {
    const int n = 5000;
    const Floats w0 = random_floats(n, 1), grad = random_floats(n, 2), m0 = random_floats(n, 3);
    Floats w = w0, m = m0, v = random_floats(n, 4);
    for (float& value : v) value = std::fabs(value);
    const Floats v0 = v;
    const AdamwStep s = step_at(5);
    reference::adamw(w.data(), grad.data(), m.data(), v.data(), n, s);
    for (int i = 0; i < n; ++i) {
        const double g = double{grad[i]} * s.gradient_scale;
        const double m1 = double{s.beta1} * m0[i] + (1.0 - s.beta1) * g;
        const double v1 = double{s.beta2} * v0[i] + (1.0 - s.beta2) * g * g;
        const double direction = m1 / s.correction1 / (std::sqrt(v1 / s.correction2) + s.epsilon);
        const double change = s.learning_rate * (direction + s.weight_decay * w0[i]);
        const double unit = std::fmax(std::fabs(w0[i]), std::fabs(change)) * 0x1p-23;
        REQUIRE(std::fabs(w[i] - (w0[i] - change)) <= 2.0 * unit);
    }
}

TEST_CASE("sum_squares: chunks of 256, then chunks of chunks", "[sum_squares]") {
    for (const int n : {0, 1, 15, 16, 17, 33, 255, 256, 257, 65535, 65536, 65537, 140000}) {
        const Floats x = random_floats(n, n, 100.0f);
        Floats partial(2 * (n / 256 + 2));
        double squares = 0.0;
        for (const float value : x) squares += double{value} * value;
        with_one_and_two_threads([&](int) {
            Floats result(1, NAN);
            reference::sum_squares(x.data(), n, partial.data(), result.data());
            REQUIRE_SAME_BITS(result, Floats(1, literal_sum_squares(x)));
            REQUIRE(std::fabs(result[0] - squares) <= 1e-5 * squares);
        });
    }
}
