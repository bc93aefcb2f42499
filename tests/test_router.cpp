#include "reference/router.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/check.hpp"
#include "reference/exact_math.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

using namespace quads;

namespace {

struct Routing {
    Routing(int T, int E, int S) : probs(T * E), gates(T * S), experts(T * S) {}
    Floats probs, gates;
    Ints experts;
};

// Logits with few distinct values, so that ties are common.
Floats tied_logits(int n, std::uint32_t seed) {
    Floats x = random_floats(n, seed, 3.0f);
    for (float& value : x) value = std::nearbyint(value);
    return x;
}

// The choice by a stable sort, the softmax and the gates by the header's formulas.
Routing literal_topk(const Floats& logits, const Ints& replay, int T, int E, int S) {
    Routing r(T, E, S);
    for (int t = 0; t < T; ++t) {
        const float* in = &logits[t * E];
        const float largest = *std::max_element(in, in + E);
        float sum = 0.0f;
        for (int e = 0; e < E; ++e) sum += exact_exp(in[e] - largest);
        for (int e = 0; e < E; ++e) r.probs[t * E + e] = exact_exp(in[e] - largest) / sum;

        Ints order(E);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return in[a] > in[b]; });
        float chosen = 0.0f;
        for (int s = 0; s < S; ++s) {
            r.experts[t * S + s] = replay.empty() ? order[s] : replay[t * S + s];
            chosen += r.probs[t * E + r.experts[t * S + s]];
        }
        for (int s = 0; s < S; ++s) r.gates[t * S + s] = r.probs[t * E + r.experts[t * S + s]] / chosen;
    }
    return r;
}

Floats literal_backward(const Floats& dgates, const Routing& r, const Ints& offsets, float balance, int T, int E,
                        int S) {
    Floats dlogits(T * E);
    for (int t = 0; t < T; ++t) {
        float z = 0.0f, mean = 0.0f, inner = 0.0f;
        for (int s = 0; s < S; ++s) z += r.probs[t * E + r.experts[t * S + s]];
        for (int s = 0; s < S; ++s) mean = std::fma(dgates[t * S + s], r.gates[t * S + s], mean);
        Floats dp(E);
        for (int e = 0; e < E; ++e) {
            const float share = static_cast<float>(offsets[e + 1] - offsets[e]) / T;
            dp[e] = ((balance * E) * share) / T;
        }
        for (int s = 0; s < S; ++s) dp[r.experts[t * S + s]] += (dgates[t * S + s] - mean) / z;
        for (int e = 0; e < E; ++e) inner = std::fma(r.probs[t * E + e], dp[e], inner);
        for (int e = 0; e < E; ++e) dlogits[t * E + e] = r.probs[t * E + e] * (dp[e] - inner);
    }
    return dlogits;
}

Routing route(const Floats& logits, const Ints& replay, int T, int E, int S) {
    Routing r(T, E, S);
    reference::router_topk(logits.data(), replay.empty() ? nullptr : replay.data(), T, E, S, r.probs.data(),
                           r.experts.data(), r.gates.data());
    return r;
}

void require_same(const Routing& a, const Routing& b) {
    REQUIRE_SAME_BITS(a.probs, b.probs);
    REQUIRE_SAME_BITS(a.gates, b.gates);
    REQUIRE(a.experts == b.experts);
}

}  // namespace

TEST_CASE("router: top-k, gates and backward are the header's formulas, bit for bit", "[router_topk]") {
    for (const int T : {1, 15, 16, 17, 33, 600}) {
        for (const int E : {1, 8, 15, 16, 17}) {
            for (const int S : {1, 2, E}) {
                if (S > E) continue;
                for (const bool ties : {false, true}) {
                    const Floats logits = ties ? tied_logits(T * E, T) : random_floats(T * E, T, 4.0f);
                    const Routing literal = literal_topk(logits, {}, T, E, S);
                    Ints offsets(E + 1), source(T * S), place(T * S);
                    reference::route_rows(literal.experts.data(), T, E, S, offsets.data(), source.data(), place.data());
                    const Floats dgates = random_floats(T * S, E);
                    const Floats dlogits_literal = literal_backward(dgates, literal, offsets, 0.01f, T, E, S);
                    with_one_and_two_threads([&](int) {
                        require_same(route(logits, {}, T, E, S), literal);
                        Floats dlogits(T * E);
                        reference::router_topk_backward(dgates.data(), literal.probs.data(), literal.experts.data(),
                                                        literal.gates.data(), offsets.data(), 0.01f, T, E, S,
                                                        dlogits.data());
                        REQUIRE_SAME_BITS(dlogits, dlogits_literal);
                    });
                }
            }
        }
    }
}

TEST_CASE("router: equal logits go to the lower expert index", "[router_topk]") {
    const Floats logits = {1, 2, 2, 2, /**/ 0, 0, 0, 0, /**/ 3, -1, 3, 4, /**/ -0.0f, 0.0f, -1, -1};
    REQUIRE(route(logits, {}, 4, 4, 2).experts == Ints{1, 2, 0, 1, 3, 0, 0, 1});
}

TEST_CASE("router: replay keeps the given experts and takes this engine's probabilities", "[router_topk]") {
    const int T = 33, E = 8, S = 2;
    const Floats logits = random_floats(T * E, 1, 4.0f);
    Ints replay(T * S);
    for (int i = 0; i < T * S; ++i) replay[i] = (i * 5 + i / S) % E;
    require_same(route(logits, replay, T, E, S), literal_topk(logits, replay, T, E, S));
    REQUIRE(route(logits, replay, T, E, S).experts == replay);
    replay[3] = E;
    REQUIRE_THROWS_AS(route(logits, replay, T, E, S), Error);
}

TEST_CASE("router: more slots than experts, or none, are refused", "[router_topk]") {
    const Floats logits(8, 0.0f);
    REQUIRE_THROWS_AS(route(logits, {}, 2, 4, 5), Error);
    REQUIRE_THROWS_AS(route(logits, {}, 2, 4, 0), Error);
}

TEST_CASE("router: rows are sorted by expert, then by token and slot", "[route_rows]") {
    const int E = 5, S = 2;
    for (const int T : {1, 15, 16, 17, 33}) {
        for (const int used : {1, 3, 5}) {  // all on one expert; two experts empty; any
            Ints experts(T * S);
            for (int i = 0; i < T * S; ++i) experts[i] = used == 1 ? 2 : (i * 7 + i / 3) % used;
            Ints order(T * S);
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return experts[a] < experts[b]; });

            Ints offsets(E + 1, -1), source(T * S, -1), place(T * S, -1);
            reference::route_rows(experts.data(), T, E, S, offsets.data(), source.data(), place.data());
            for (int r = 0; r < T * S; ++r) {
                REQUIRE(source[r] == order[r] / S);
                REQUIRE(place[order[r]] == r);
            }
            for (int e = 0; e <= E; ++e) {
                REQUIRE(offsets[e] == std::count_if(experts.begin(), experts.end(), [&](int x) { return x < e; }));
            }
        }
    }
    const int wrong = 5;
    Ints offsets(E + 1), source(1), place(1);
    REQUIRE_THROWS_AS(reference::route_rows(&wrong, 1, E, 1, offsets.data(), source.data(), place.data()), Error);
}

TEST_CASE("router: gather, combine and its backward are the header's formulas, bit for bit", "[combine_rows]") {
    const int E = 5;
    for (const int T : {1, 15, 16, 17, 33, 600}) {
        for (const int D : {1, 15, 16, 17, 33}) {
            for (const int S : {1, 2, 5}) {
                const int R = T * S;
                const Ints experts = literal_topk(random_floats(T * E, T), {}, T, E, S).experts;
                Ints offsets(E + 1), source(R), place(R);
                reference::route_rows(experts.data(), T, E, S, offsets.data(), source.data(), place.data());
                const Floats x = random_floats(R * D, 1), tokens = random_floats(T * D, 2), gates = random_floats(R, 3);

                Floats y_literal(T * D), sum_literal(T * D), gathered_literal(R * D), dx_literal(R * D);
                Floats dgates_literal(R);
                for (int t = 0; t < T; ++t) {
                    for (int s = 0; s < S; ++s) {
                        const int r = place[t * S + s];
                        for (int d = 0; d < D; ++d) {
                            const float dy = tokens[t * D + d], gate = gates[t * S + s];
                            float& y = y_literal[t * D + d];
                            y = std::fma(gate, x[r * D + d], y);
                            sum_literal[t * D + d] += x[r * D + d];
                            gathered_literal[r * D + d] = dy;
                            dx_literal[r * D + d] = gate * dy;
                            dgates_literal[t * S + s] = std::fma(dy, x[r * D + d], dgates_literal[t * S + s]);
                        }
                    }
                }
                with_one_and_two_threads([&](int) {
                    Floats y(T * D, NAN), sum(T * D, NAN), gathered(R * D), dx(R * D), dgates(R);
                    reference::gather_rows(tokens.data(), source.data(), R, D, gathered.data());
                    reference::combine_rows(x.data(), place.data(), gates.data(), T, D, S, y.data());
                    reference::combine_rows(x.data(), place.data(), nullptr, T, D, S, sum.data());
                    reference::combine_rows_backward(tokens.data(), x.data(), place.data(), gates.data(), T, D, S,
                                                     dx.data(), dgates.data());
                    REQUIRE_SAME_BITS(gathered, gathered_literal);
                    REQUIRE_SAME_BITS(y, y_literal);
                    REQUIRE_SAME_BITS(sum, sum_literal);
                    REQUIRE_SAME_BITS(dx, dx_literal);
                    REQUIRE_SAME_BITS(dgates, dgates_literal);
                });
            }
        }
    }
}
