#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;

namespace {

void check_routing(Values& values, int T, int E, int S, int D, bool replayed) {
    const int R = T * S;
    // Logits on a coarse grid, so that many are equal and the lower index must win.
    std::vector<float> logits(std::size_t(T) * E);
    for (float& logit : logits) logit = static_cast<float>(values.integer(-8, 8)) * 0.25f;
    std::vector<int> replay;
    for (int t = 0; t < T; ++t) {
        const std::vector<int> order = values.permutation(E);
        replay.insert(replay.end(), order.begin(), order.begin() + S);
    }
    const std::size_t wide = std::size_t(R) * D, narrow = std::size_t(T) * D;
    const std::vector<float> x = values.floats(narrow), routed = values.floats(wide), dgates = values.floats(R);
    check_same_bits(text("routing T ", T, " E ", E, " S ", S, " D ", D), [&](Arrays& a) {
        float *probs = a.output<float>(logits.size()), *gates = a.output<float>(R);
        int *experts = a.output<int>(R), *offsets = a.output<int>(E + 1);
        int *source = a.output<int>(R), *place = a.output<int>(R);
        a.op.router_topk(a.input(logits), replayed ? a.input(replay) : nullptr, T, E, S, probs, experts, gates);
        a.op.route_rows(experts, T, E, S, offsets, source, place);
        const float* x_in = a.input(x);
        const float* routed_in = a.input(routed);
        a.op.gather_rows(x_in, source, R, D, a.output<float>(wide));
        a.op.combine_rows(routed_in, place, gates, T, D, S, a.output<float>(narrow));
        a.op.combine_rows(routed_in, place, nullptr, T, D, S, a.output<float>(narrow));
        a.op.combine_rows_backward(x_in, routed_in, place, gates, T, D, S, a.output<float>(wide), a.output<float>(R));
        a.op.router_topk_backward(a.input(dgates), probs, experts, gates, offsets, 0.01f, T, E, S,
                                  a.output<float>(logits.size()));
    });
}

}  // namespace

TEST_CASE("cuda: routing, from logits to gradients", "[gpu]") {
    Values values(1);
    for (bool replayed : {false, true}) {
        for (int T : {1, 17, 129, 1100}) {
            check_routing(values, T, 1, 1, 16, replayed);
            check_routing(values, T, 3, 2, 33, replayed);
            check_routing(values, T, 8, 2, 64, replayed);
            check_routing(values, T, 60, 8, 5, replayed);
        }
    }
}

TEST_CASE("cuda: sorting rows where one expert takes all", "[gpu]") {
    for (int expert : {0, 3, 39}) {
        const std::vector<int> experts(3001, expert);
        check_same_bits(text("all to ", expert), [&](Arrays& a) {
            a.op.route_rows(a.input(experts), 3001, 40, 1, a.output<int>(41), a.output<int>(3001), a.output<int>(3001));
        });
    }
}
