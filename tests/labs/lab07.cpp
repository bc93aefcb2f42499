#include "notebooks/labs/adapter.hpp"
#include "reference/exact_math.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

namespace {

Floats advantages_of(const Floats& rewards, int group, float epsilon) {
    Floats advantages(rewards.size(), NAN);
    lab::group_advantages(rewards.data(), static_cast<int>(rewards.size()), group, epsilon, advantages.data());
    return advantages;
}

// Gradient of one sequence of one token.
float one_token(float trainer, float rollout, float advantage) {
    const int length = 1;
    float gradient = NAN;
    lab::policy_gradient(&trainer, &rollout, &advantage, &length, 1, 1, 1, 0.2f, 0.3f, &gradient);
    return gradient;
}

}  // namespace

TEST_CASE("1. advantages of four rollouts by hand", "[lab07]") {
    // Mean 1/4, unbiased variance (9/16 + 3/16) / 3 = 1/4, deviation 1/2.
    REQUIRE_SAME_BITS(advantages_of({1, 0, 0, 0}, 4, 0.0f), (Floats{1.5f, -0.5f, -0.5f, -0.5f}));
}

TEST_CASE("2. groups are on their own, equal rewards give 0, epsilon is added", "[lab07]") {
    REQUIRE_SAME_BITS(advantages_of({1, 0, 0, 0, 1, 1, 1, 1}, 4, 0.5f),
                      (Floats{0.75f, -0.25f, -0.25f, -0.25f, 0, 0, 0, 0}));
    REQUIRE_SAME_BITS(advantages_of({0.1f, 0.1f, 0.1f}, 3, 0.0f), (Floats{0, 0, 0}));
    REQUIRE_SAME_BITS(advantages_of({0.7f}, 1, 1e-4f), Floats{0});
}

TEST_CASE("3. the gradient is minus ratio times advantage", "[lab07]") {
    REQUIRE_SAME_BITS(Floats{one_token(-1.0f, -1.0f, 2.0f)}, Floats{-2.0f});
    REQUIRE_SAME_BITS(Floats{one_token(-1.0f, -1.1f, 2.0f)}, Floats{-(quads::exact_exp(-1.0f + 1.1f) * 2.0f)});
}

TEST_CASE("4. clipping stops the gradient only where it lowers the objective", "[lab07]") {
    const float e = 0.5f;  // ratios exp(0.5) = 1.65 and exp(-0.5) = 0.61, outside [0.8, 1.3] on either side
    REQUIRE(one_token(e, 0, 1.0f) == 0.0f);
    REQUIRE(one_token(-e, 0, -1.0f) == 0.0f);
    REQUIRE(one_token(e, 0, -1.0f) == quads::exact_exp(e));
    REQUIRE(one_token(-e, 0, 1.0f) == -quads::exact_exp(-e));
}

TEST_CASE("5. tokens beyond the length get exactly 0, whatever they hold", "[lab07]") {
    const Floats trainer{-1, NAN, -1, -1}, rollout{-1, 3, -1, -1}, advantages{1, -1};
    const Ints lengths{1, 2};
    Floats gradient(4, NAN);
    lab::policy_gradient(trainer.data(), rollout.data(), advantages.data(), lengths.data(), 2, 2, 3, 0.2f, 0.2f,
                         gradient.data());
    REQUIRE_SAME_BITS(gradient, (Floats{-1.0f / 3, 0.0f, 1.0f / 3, 1.0f / 3}));
}

TEST_CASE("6. advantages and gradients have the bits of the reference", "[lab07]") {
    const int sequences = 24, n = 7, group = 8;
    const Floats rewards = random_floats(sequences, 1), advantages = advantages_of(rewards, group, 1e-4f);
    Floats expected(sequences);
    quads_group_advantages(rewards.data(), sequences, group, 1e-4f, expected.data());
    REQUIRE_SAME_BITS(advantages, expected);

    const Floats trainer = random_floats(sequences * n, 2, 3.0f), rollout = random_floats(sequences * n, 3, 30.0f);
    Ints lengths(sequences);
    for (int i = 0; i < sequences; ++i) lengths[i] = i % (n + 1);
    Floats gradient(sequences * n, NAN), gradient_expected(sequences * n);
    lab::policy_gradient(trainer.data(), rollout.data(), advantages.data(), lengths.data(), sequences, n, 80, 0.2f,
                         0.3f, gradient.data());
    quads_policy_gradient(trainer.data(), rollout.data(), advantages.data(), lengths.data(), sequences, n, 80,
                          QUADS_CORRECTION_ROLLOUT, 0.2f, 0.3f, 0.0f, gradient_expected.data());
    // Whether a clipped token gets +0 or -0 is not part of the task.
    for (Floats* values : {&gradient, &gradient_expected}) {
        for (float& value : *values) value += 0.0f;
    }
    REQUIRE_SAME_BITS(gradient, gradient_expected);
}
