#include "tests/gpu/same_bits.hpp"
#include "tests/refusal.hpp"

using namespace quads;
using namespace quads::gpu_test;

TEST_CASE("cuda: FP8 quantise and GEMM over sizes and groups", "[gpu]") {
    Values values(1);
    struct Case {
        int M, N, K, E, spread;
    };
    for (const Case c : {Case{1, 1, 1, 1, 2}, Case{15, 16, 17, 1, 2}, Case{33, 31, 64, 3, 20}, Case{129, 33, 127, 8, 2},
                         Case{128, 64, 129, 60, 60}, Case{2, 16, 2000, 1, 2}}) {
        const std::vector<int> offsets = values.offsets(c.M, c.E);
        std::vector<int> w_offsets(c.E + 1);
        for (int e = 0; e <= c.E; ++e) w_offsets[e] = e * c.N;
        const std::vector<float> x = values.floats(std::size_t(c.M) * c.K, c.spread);
        const std::vector<float> w = values.floats(std::size_t(c.E) * c.N * c.K, c.spread);
        for (OuterScale scale : {OuterScale::row, OuterScale::group}) {
            check_same_bits(text("fp8 M ", c.M, " N ", c.N, " K ", c.K, " E ", c.E), [&](Arrays& a) {
                const Groups groups = a.groups(offsets);
                const int outers = scale == OuterScale::row ? c.M : c.E;
                const Fp8 qx{a.output<std::uint8_t>(x.size()), a.output<float>(outers), scale};
                const Fp8 qw{a.output<std::uint8_t>(w.size()), a.output<float>(c.E), OuterScale::group};
                a.op.quantize_fp8(a.input(x), groups, c.M, c.K, qx);
                a.op.quantize_fp8(a.input(w), a.groups(w_offsets), c.E * c.N, c.K, qw);
                a.op.gemm_fp8(qx, qw, groups, c.M, c.N, c.K, a.output<float>(std::size_t(c.M) * c.N));
            });
        }
    }
}

TEST_CASE("cuda: FP8 reports NaN as on the CPU", "[gpu]") {
    std::vector<float> x(3 * 5, 1.0f);
    x[2 * 5 + 4] = NAN;
    const auto message = [&](const Operations& op) {
        return refusal([&] {
            Arrays a(op, 0);
            const Fp8 q{a.output<std::uint8_t>(15), a.output<float>(3), OuterScale::row};
            a.op.quantize_fp8(a.input(x), a.groups({0, 3}), 3, 5, q);
            a.results();
        });
    };
    CHECK(message(cpu_operations()).find("row 2, column 4") != std::string::npos);
    CHECK(message(cuda_operations()) == message(cpu_operations()));
}
