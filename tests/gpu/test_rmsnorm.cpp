#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;

TEST_CASE("cuda: RMSNorm and its backward", "[gpu]") {
    Values values(1);
    for (int T : {1, 7, 33, 257, 1025}) {
        for (int D : {1, 16, 31, 33, 64, 129}) {
            const std::size_t n = std::size_t(T) * D;
            const std::vector<float> x = values.floats(n), g = values.floats(D), dh = values.floats(n, 8);
            check_same_bits(text("rmsnorm T ", T, " D ", D), [&](Arrays& a) {
                const float* x_in = a.input(x);
                const float* g_in = a.input(g);
                float* rstd = a.output<float>(T);
                a.op.rmsnorm(x_in, g_in, T, D, a.output<float>(n), rstd);
                a.op.rmsnorm_backward(a.input(dh), x_in, g_in, rstd, T, D, a.output<float>(n), a.output<float>(D));
            });
        }
    }
}
