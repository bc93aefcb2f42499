#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;

TEST_CASE("cuda: SwiGLU and its backward", "[gpu]") {
    Values values(1);
    for (int R : {1, 17, 300}) {
        for (int F : {1, 31, 64}) {
            const std::size_t n = std::size_t(R) * F;
            const std::vector<float> gate_up = values.floats(2 * n, 8), dm = values.floats(n);
            check_same_bits(text("swiglu R ", R, " F ", F), [&](Arrays& a) {
                const float* in = a.input(gate_up);
                a.op.swiglu(in, R, F, a.output<float>(n));
                a.op.swiglu_backward(a.input(dm), in, R, F, a.output<float>(2 * n));
            });
        }
    }
}
