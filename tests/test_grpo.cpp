// The loss of GRPO, piece by piece, with the traps that public implementations fell into.
#include <cmath>
#include <limits>

#include "reference/check.hpp"
#include "src/grpo.hpp"
#include "tests/catch.hpp"

using namespace quads;

namespace {

// A batch of `sequences` responses of n tokens whose engines agree on every token.
TokenBatch agreeing_batch(int sequences, int n) {
    TokenBatch batch;
    batch.sequences = sequences;
    batch.n = n;
    batch.logp_trainer.assign(static_cast<std::size_t>(sequences) * n, -1.25f);
    batch.logp_rollout = batch.logp_trainer;
    batch.entropy.assign(batch.logp_trainer.size(), 0.5f);
    batch.advantages.assign(sequences, 1.0f);
    batch.lengths.assign(sequences, n);
    return batch;
}

}  // namespace

TEST_CASE("Equal rewards give exactly zero advantage, whatever their value", "[grpo]") {
    for (float value : {0.0f, 1.0f, 0.1f, -3.7f, 1e30f, 1e-30f}) {
        const std::vector<float> rewards(7, value);  // the rounded mean of seven 0.1 is not 0.1
        for (float advantage : group_advantages(rewards, 7, 1e-4f)) CHECK(advantage == 0.0f);
    }
}

TEST_CASE("A group of one has no advantage", "[grpo]") {
    for (float advantage : group_advantages({0.0f, 1.0f, 0.5f}, 1, 1e-4f)) CHECK(advantage == 0.0f);
}

TEST_CASE("Advantages are normalised inside each group with the unbiased deviation", "[grpo]") {
    const std::vector<float> advantages = group_advantages({1, 0, 0, 0, 0, 1, 1, 1}, 4, 1e-4f);
    // By hand: mean 1/4, squared deviations 9/16 + 3/16, divided by 3: deviation 1/2.
    CHECK(advantages[0] == Approx(0.75 / 0.5001).epsilon(1e-6));
    CHECK(advantages[1] == Approx(-0.25 / 0.5001).epsilon(1e-6));
    CHECK(advantages[4] == Approx(-0.75 / 0.5001).epsilon(1e-6));
    CHECK(advantages[5] == Approx(0.25 / 0.5001).epsilon(1e-6));
}

TEST_CASE("Rewards that cannot be grouped are refused", "[grpo]") {
    CHECK_THROWS_AS(group_advantages({1, 0, 1}, 2, 1e-4f), Error);
}

TEST_CASE("Zero-spread groups are counted", "[grpo]") {
    CHECK(zero_spread_fraction({1, 1, 0, 1, 0, 0, 1, 0}, 2) == 0.5);
}

TEST_CASE("On policy the ratio is one in value and still has a gradient", "[grpo]") {
    const TokenBatch batch = agreeing_batch(2, 3);
    for (float gradient : policy_gradient(batch, GrpoConfig{}, 6)) CHECK(gradient == -1.0f / 6.0f);
}

TEST_CASE("The gradient is the derivative of the clipped objective", "[grpo]") {
    const GrpoConfig config;
    for (float advantage : {1.5f, -0.75f}) {
        for (float gap : {-1.0f, -0.3f, -0.1f, 0.0f, 0.1f, 0.3f, 1.0f}) {
            TokenBatch batch = agreeing_batch(1, 1);
            batch.advantages = {advantage};
            batch.logp_trainer[0] = batch.logp_rollout[0] + gap;
            const auto objective = [&](double trainer) {
                const double ratio = std::exp(trainer - batch.logp_rollout[0]);
                const double clipped = std::min(std::max(ratio, 1.0 - config.clip_low), 1.0 + config.clip_high);
                return std::min(ratio * advantage, clipped * advantage);
            };
            const double h = 1e-5, at = batch.logp_trainer[0];
            const double slope = (objective(at + h) - objective(at - h)) / (2 * h);
            CHECK(policy_gradient(batch, config, 1)[0] == Approx(-slope).margin(1e-5));
        }
    }
}

TEST_CASE("Corrections: ignored ratio and truncated importance sampling", "[grpo]") {
    TokenBatch batch = agreeing_batch(1, 2);
    batch.logp_trainer[0] = batch.logp_rollout[0] + 3.0f;
    batch.logp_trainer[1] = batch.logp_rollout[1] - 1.0f;
    GrpoConfig config;
    config.correction = Correction::none;
    CHECK(policy_gradient(batch, config, 2) == std::vector<float>{-0.5f, -0.5f});
    config.correction = Correction::tis;
    const std::vector<float> truncated = policy_gradient(batch, config, 2);
    CHECK(truncated[0] == -config.tis_cap / 2);
    CHECK(truncated[1] == Approx(-std::exp(-1.0) / 2).epsilon(1e-6));
}

TEST_CASE("Silenced tokens are those that the class names, and no others", "[grpo]") {
    // Probability of the trainer, log-ratio and advantage of ten tokens, each a response of its own. The first two
    // probabilities are the floats on both sides of 0.1, the log-ratios lie inside, above and below the clip range.
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float under = std::nextafter(-2.3025850f, -3.0f), over = std::nextafter(-2.3025850f, 0.0f);
    REQUIRE((std::exp(static_cast<double>(under)) < 0.1 && std::exp(static_cast<double>(over)) > 0.1));
    const std::vector<float> logp{under, over, under, over, -0.5f, -0.5f, -0.5f, -0.5f, nan, -5.0f};
    const std::vector<float> gap{0, 0, 0, 0, 0.5f, 0.5f, -0.5f, -0.5f, 0, 0};
    const std::vector<float> advantages{-1, -1, 1, 1, -1, 1, -1, 1, -1, 0};
    TokenBatch batch = agreeing_batch(10, 1);
    batch.logp_trainer = logp;
    for (int i = 0; i < 10; ++i) batch.logp_rollout[i] = logp[i] - gap[i];
    batch.advantages = advantages;

    const auto silenced = [&](GrpoConfig config) {
        config.correction = Correction::none;  // so that clipping leaves no zero of its own
        std::vector<int> indices;
        const std::vector<float> gradient = policy_gradient(batch, config, 10);
        for (int i = 0; i < 10; ++i) {
            if (gradient[i] == 0 && batch.advantages[i] != 0) indices.push_back(i);
            if (gradient[i] != 0) CHECK(gradient[i] == -batch.advantages[i] / 10);
        }
        CHECK(silenced_share(batch, config).tokens == static_cast<double>(indices.size()) / 10);
        CHECK(silenced_share(batch, config).weight == static_cast<double>(indices.size()) / 9);
        return indices;
    };
    const std::vector<std::pair<Silenced, std::vector<int>>> classes{
        {Silenced::none, {}},
        {Silenced::negative_unlikely, {0}},
        {Silenced::negative_likely, {1, 4, 6}},
        {Silenced::negative_above, {4}},
        {Silenced::positive_below, {7}},
        {Silenced::outside, {4, 5, 6, 7}},
    };
    for (const auto& [name, indices] : classes) {
        GrpoConfig config;
        config.silenced = name;
        INFO(static_cast<int>(name));
        CHECK(silenced(config) == indices);
    }

    // With the ratio in the gradient the sum holds a NaN, and so does the share: a number would be a wrong one.
    GrpoConfig config;
    config.silenced = Silenced::outside;
    CHECK(std::isnan(silenced_share(batch, config).weight));
    CHECK(silenced_share(batch, config).tokens == 0.4);
}

TEST_CASE("Left-out tokens are selected away, not multiplied by zero", "[grpo]") {
    TokenBatch batch = agreeing_batch(2, 4);
    batch.lengths = {2, 4};
    for (int j : {2, 3}) {
        batch.logp_trainer[j] = std::numeric_limits<float>::quiet_NaN();
        batch.logp_rollout[j] = -std::numeric_limits<float>::infinity();
        batch.entropy[j] = std::numeric_limits<float>::infinity();
    }
    REQUIRE(counted_tokens(batch) == 6);
    const std::vector<float> gradient = policy_gradient(batch, GrpoConfig{}, 6);
    CHECK(gradient == std::vector<float>{-1 / 6.0f, -1 / 6.0f, 0, 0, -1 / 6.0f, -1 / 6.0f, -1 / 6.0f, -1 / 6.0f});
    const MismatchStatistics s = mismatch_statistics(batch, GrpoConfig{});
    CHECK(s.gap_max == 0.0);
    CHECK(s.entropy == 0.5);
    CHECK(s.ess == Approx(1.0));
}

TEST_CASE("Splitting a batch into parts changes no bit of the gradient", "[grpo]") {
    TokenBatch whole = agreeing_batch(4, 3);
    whole.lengths = {3, 1, 2, 3};
    for (std::size_t i = 0; i < whole.logp_trainer.size(); ++i) whole.logp_trainer[i] += 0.01f * static_cast<float>(i);
    const int tokens = counted_tokens(whole);
    const std::vector<float> expected = policy_gradient(whole, GrpoConfig{}, tokens);
    std::vector<float> parts;
    for (int sequence = 0; sequence < 4; ++sequence) {
        TokenBatch part = agreeing_batch(1, 3);
        part.lengths = {whole.lengths[sequence]};
        for (int j = 0; j < 3; ++j) part.logp_trainer[j] = whole.logp_trainer[sequence * 3 + j];
        for (float gradient : policy_gradient(part, GrpoConfig{}, tokens)) parts.push_back(gradient);
    }
    CHECK(parts == expected);
}

TEST_CASE("The log-ratio is clamped before the exponential", "[grpo]") {
    TokenBatch batch = agreeing_batch(1, 1);
    batch.advantages = {-1.0f};
    batch.logp_rollout[0] = -200.0f;
    batch.logp_trainer[0] = 0.0f;
    const float gradient = policy_gradient(batch, GrpoConfig{}, 1)[0];
    CHECK(std::isfinite(gradient));
    CHECK(gradient == Approx(std::exp(20.0)).epsilon(1e-6));
}

TEST_CASE("Mismatch statistics by hand", "[grpo]") {
    TokenBatch batch = agreeing_batch(1, 2);
    batch.logp_trainer[0] = batch.logp_rollout[0] + 1.0f;
    batch.logp_trainer[1] = batch.logp_rollout[1] - 0.5f;
    const MismatchStatistics s = mismatch_statistics(batch, GrpoConfig{});
    const double up = std::exp(1.0), down = std::exp(-0.5);
    CHECK(s.gap_mean == Approx(0.75));
    CHECK(s.gap_max == Approx(1.0));
    CHECK(s.gap_over_ln2 == 0.5);
    CHECK(s.kl_k1 == Approx(-0.25));
    CHECK(s.kl_k3 == Approx((up - 2 + down - 0.5) / 2).epsilon(1e-6));
    CHECK(s.ratio_max == Approx(up).epsilon(1e-6));
    CHECK(s.clip_fraction == 1.0);
    CHECK(s.ess == Approx((up + down) * (up + down) / (2 * (up * up + down * down))).epsilon(1e-6));
}
