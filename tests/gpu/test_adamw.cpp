#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;

TEST_CASE("cuda: AdamW over several steps", "[gpu]") {
    Values values(1);
    for (std::int64_t n : {1, 255, 257, 5000}) {
        const std::vector<float> w = values.floats(n), m(n), v(n);
        const std::vector<float> gradients[] = {values.floats(n, 10), values.floats(n, 60), std::vector<float>(n)};
        check_same_bits(text("adamw n ", n), [&](Arrays& a) {
            float *w_in = a.inout(w), *m_in = a.inout(m), *v_in = a.inout(v);
            float power1 = 1.0f, power2 = 1.0f;
            for (const std::vector<float>& gradient : gradients) {
                power1 *= 0.9f, power2 *= 0.95f;
                a.op.adamw(w_in, a.input(gradient), m_in, v_in, n,
                           {1e-3f, 0.9f, 0.95f, 1e-8f, 0.01f, 1.0f - power1, 1.0f - power2, 0.37f});
            }
        });
    }
}

TEST_CASE("cuda: sum of squares", "[gpu]") {
    Values values(2);
    for (std::int64_t n : {0, 1, 255, 256, 257, 65536, 65537, 300000}) {
        const std::vector<float> x = values.floats(n, 10);
        check_same_bits(text("sum_squares n ", n), [&](Arrays& a) {
            const std::vector<float> scratch(2 * (n / 256 + 2));
            a.op.sum_squares(a.input(x), n, a.input(scratch), a.output<float>(1));
        });
    }
}
