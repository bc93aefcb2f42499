#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;

namespace {

void check_gemm(Values& values, const std::vector<int>& offsets, int N, int K, int spread = 2) {
    const int E = static_cast<int>(offsets.size()) - 1, M = offsets.back();
    const std::size_t x_size = std::size_t(M) * K, y_size = std::size_t(M) * N, w_size = std::size_t(E) * N * K;
    const std::vector<float> x = values.bf16(x_size, spread), w = values.bf16(w_size, spread), outer = values.floats(E);
    const std::vector<float> dy = values.floats(y_size, spread), raw_x = values.floats(x_size, spread);
    check_same_bits(text("bf16 M ", M, " N ", N, " K ", K, " E ", E), [&](Arrays& a) {
        const Groups groups = a.groups(offsets);
        const float* w_in = a.input(w);
        const float* dy_in = a.input(dy);
        for (const float* w_outer : {static_cast<const float*>(nullptr), static_cast<const float*>(a.input(outer))}) {
            a.op.gemm_bf16(a.input(x), w_in, w_outer, groups, M, N, K, a.output<float>(y_size));
            a.op.gemm_bf16_backward_input(dy_in, w_in, w_outer, groups, M, N, K, a.output<float>(x_size));
        }
        a.op.gemm_bf16_backward_weight(dy_in, a.input(raw_x), groups, M, N, K, a.output<float>(w_size));
    });
}

}  // namespace

TEST_CASE("cuda: BF16 GEMM and its gradients over sizes", "[gpu]") {
    Values values(1);
    for (int M : {1, 15, 17, 32, 33, 127, 129}) {
        for (int N : {1, 16, 31, 128}) {
            for (int K : {1, 16, 33, 64, 129}) check_gemm(values, {0, M}, N, K);
        }
    }
    check_gemm(values, {0, 1000}, 17, 33, 12);
    check_gemm(values, {0, 20}, 20, 2000, 60);
}

TEST_CASE("cuda: grouped BF16 GEMM over expert counts", "[gpu]") {
    Values values(2);
    for (int E : {1, 3, 8, 40, 60}) {
        for (int M : {1, 47, 300}) check_gemm(values, values.offsets(M, E), 48, 64);
    }
    check_gemm(values, {0, 0, 0, 129, 129}, 33, 80);
    check_gemm(values, {0, 0}, 16, 16);
}
