#include "reference/log_softmax.hpp"

#include <algorithm>
#include <cmath>

#include "reference/check.hpp"
#include "reference/exact_math.hpp"
#include "reference/philox.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

using namespace quads;

namespace {

struct Draw {
    int token;
    float logp;
};

Draw draw(const Floats& logp, std::uint32_t seed, std::uint32_t sequence = 0) {
    const int row = 0;
    Draw d;
    reference::sample(logp.data(), &row, 1, static_cast<int>(logp.size()), seed, 3, sequence, 5, &d.token, &d.logp);
    return d;
}

// The number behind draw(., seed, sequence).
float uniform_of(std::uint32_t seed, std::uint32_t sequence = 0) {
    return uniform24(philox4x32_10({{3, sequence, 5, 0}}, seed, 0).word[0]);
}

}  // namespace

TEST_CASE("log_softmax: forward and backward are the header's formulas, bit for bit", "[log_softmax]") {
    for (const int T : {1, 15, 16, 17, 33, 600}) {
        for (const int V : {1, 15, 16, 17, 33}) {
            const float temperature = 0.7f;
            const Floats logits = random_floats(T * V, T, 20.0f), weights = random_floats(T * V, V);
            Floats logp_literal(T * V), entropy_literal(T), dlogits_literal(T * V);
            for (int t = 0; t < T; ++t) {
                float m = -INFINITY, sum = 0.0f, inner = 0.0f, weight = 0.0f;
                for (int v = 0; v < V; ++v) m = std::max(m, logits[t * V + v] / temperature);
                for (int v = 0; v < V; ++v) sum += exact_exp(logits[t * V + v] / temperature - m);
                for (int v = 0; v < V; ++v) {
                    float& p = logp_literal[t * V + v];
                    p = (logits[t * V + v] / temperature - m) - exact_log(sum);
                    inner = std::fma(exact_exp(p), p, inner);
                    weight += weights[t * V + v];
                }
                entropy_literal[t] = -inner;
                for (int v = 0; v < V; ++v) {
                    const float share = exact_exp(logp_literal[t * V + v]) * weight;
                    dlogits_literal[t * V + v] = (weights[t * V + v] - share) / temperature;
                }
            }
            with_one_and_two_threads([&](int) {
                Floats logp(T * V), entropy(T), dlogits(T * V);
                reference::log_softmax(logits.data(), temperature, T, V, logp.data(), entropy.data());
                reference::log_softmax_backward(logp.data(), weights.data(), temperature, T, V, dlogits.data());
                REQUIRE_SAME_BITS(logp, logp_literal);
                REQUIRE_SAME_BITS(entropy, entropy_literal);
                REQUIRE_SAME_BITS(dlogits, dlogits_literal);
            });
        }
    }
}

// Each operation rounds by 2^-24 of a value of at most 60 (the largest |z|): 1e-5 leaves room for four of them.
TEST_CASE("log_softmax: close to double arithmetic", "[log_softmax]") {
    const int T = 100, V = 17;
    const Floats logits = random_floats(T * V, 1, 20.0f);
    Floats logp(T * V), entropy(T);
    reference::log_softmax(logits.data(), 0.7f, T, V, logp.data(), entropy.data());
    for (int t = 0; t < T; ++t) {
        double sum = 0.0, expected_entropy = 0.0;
        for (int v = 0; v < V; ++v) sum += std::exp(double{logits[t * V + v]} / 0.7f);
        for (int v = 0; v < V; ++v) {
            const double value = double{logits[t * V + v]} / 0.7f - std::log(sum);
            expected_entropy -= std::exp(value) * value;
            REQUIRE(std::fabs(logp[t * V + v] - value) < 1e-5);
        }
        REQUIRE(std::fabs(entropy[t] - expected_entropy) < 1e-5);
    }
}

TEST_CASE("log_softmax: a temperature of 0 or below, or NaN, and an empty vocabulary are refused", "[log_softmax]") {
    Floats x(4), y(4);
    for (const float temperature : {0.0f, -1.0f, float{NAN}}) {
        REQUIRE_THROWS_AS(reference::log_softmax(x.data(), temperature, 1, 4, y.data(), y.data()), Error);
        REQUIRE_THROWS_AS(reference::log_softmax_backward(x.data(), x.data(), temperature, 1, 4, y.data()), Error);
    }
    REQUIRE_THROWS_AS(reference::log_softmax(x.data(), 1.0f, 1, 0, y.data(), y.data()), Error);
}

TEST_CASE("sample: the first token whose cumulative probability exceeds u", "[sample]") {
    const int N = 700, V = 17;
    const Floats logits = random_floats(33 * V, 1, 3.0f);
    Floats logp(33 * V), entropy(33);
    reference::log_softmax(logits.data(), 1.0f, 33, V, logp.data(), entropy.data());
    Ints row(N);
    for (int n = 0; n < N; ++n) row[n] = n * 5 % 33;
    with_one_and_two_threads([&](int) {
        Ints token(N);
        Floats token_logp(N);
        reference::sample(logp.data(), row.data(), N, V, 11, 3, 1000, 5, token.data(), token_logp.data());
        for (int n = 0; n < N; ++n) {
            const float* p = &logp[row[n] * V];
            const float u = uniform_of(11, 1000 + n);
            float cumulative = 0.0f;
            int expected = 0;
            while (expected < V - 1 && !(u < (cumulative += exact_exp(p[expected])))) ++expected;
            REQUIRE(token[n] == expected);
            REQUIRE(float_bits(token_logp[n]) == float_bits(p[expected]));
        }
    });
}

TEST_CASE("sample: u equal to a cumulative probability goes to the next token", "[sample]") {
    int found = 0;
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
        const float u = uniform_of(seed);
        float logp = std::nextafter(std::log(u), -10.0f);
        while (exact_exp(logp) < u) logp = std::nextafter(logp, 1.0f);
        if (exact_exp(logp) != u) continue;
        ++found;
        REQUIRE(draw({logp, 0.0f}, seed).token == 1);
        while (exact_exp(logp) <= u) logp = std::nextafter(logp, 1.0f);
        REQUIRE(draw({logp, 0.0f}, seed).token == 0);
    }
    REQUIRE(found > 20);
}

TEST_CASE("sample: a token of probability 0 is never drawn", "[sample]") {
    const float quarter = std::log(0.25f), never = -200.0f;
    int beyond = 0;
    for (std::uint32_t seed = 0; seed < 500; ++seed) {
        REQUIRE(draw({never, 0.0f, never}, seed).token == 1);
        // The probabilities sum to one half only: every larger u falls to the last token that can be drawn.
        const int token = draw({never, quarter, never, quarter, -INFINITY, never}, seed).token;
        REQUIRE((token == 1 || token == 3));
        if (uniform_of(seed) > 0.51f) {
            ++beyond;
            REQUIRE(token == 3);
        }
    }
    REQUIRE(beyond > 100);
    REQUIRE_THROWS_AS(draw({never, never}, 1), Error);
    REQUIRE_THROWS_AS(draw({NAN, NAN}, 1), Error);
}

TEST_CASE("sample: frequencies follow the probabilities", "[sample]") {
    const double probs[] = {0.5, 0.25, 0.125, 0.125};
    Floats logp;
    for (const double p : probs) logp.push_back(static_cast<float>(std::log(p)));
    const int N = 40000;
    const Ints row(N, 0);
    Ints token(N);
    Floats token_logp(N);
    reference::sample(logp.data(), row.data(), N, 4, 1, 2, 3, 4, token.data(), token_logp.data());
    for (int v = 0; v < 4; ++v) {
        const double expected = N * probs[v], deviation = std::sqrt(expected * (1 - probs[v]));
        REQUIRE(std::fabs(std::count(token.begin(), token.end(), v) - expected) < 4 * deviation);
    }
}
