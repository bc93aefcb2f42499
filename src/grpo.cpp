#include "src/grpo.hpp"

#include <algorithm>
#include <cmath>

#include "reference/check.hpp"
#include "reference/exact_math.hpp"

namespace quads {
namespace {

constexpr float kLogRatioLimit = 20.0f;  // keeps exp finite; far outside any clip range

// Calls visit(index) for every counted token, sequences and positions ascending.
template <typename Visit>
void for_each_token(const TokenBatch& batch, const Visit& visit) {
    for (int i = 0; i < batch.sequences; ++i) {
        for (int j = 0; j < batch.lengths[i]; ++j) visit(i, static_cast<std::size_t>(i) * batch.n + j);
    }
}

// What the policy gradient of a token depends on.
struct Token {
    float A, logp, ratio;  // advantage, the trainer's log-probability, trainer / rollout
};

Token token_of(const TokenBatch& batch, int sequence, std::size_t i) {
    const float log_ratio = std::clamp(batch.logp_trainer[i] - batch.logp_rollout[i], -kLogRatioLimit, kLogRatioLimit);
    return {batch.advantages[sequence], batch.logp_trainer[i], exact_exp(log_ratio)};
}

bool above(float ratio, const GrpoConfig& config) { return ratio > 1.0f + config.clip_high; }
bool below(float ratio, const GrpoConfig& config) { return ratio < 1.0f - config.clip_low; }

// d objective / d logp_trainer of a token, times the number of tokens.
float weight(const Token& token, const GrpoConfig& config) {
    const auto [A, logp, ratio] = token;
    switch (config.correction) {
        case Correction::rollout:
            // The minimum follows the clipped branch only where clipping lowers the objective; there the slope is 0.
            if (A > 0 ? above(ratio, config) : below(ratio, config)) return 0.0f;
            return ratio * A;
        case Correction::none:
            return A;
        case Correction::tis:
            return std::min(ratio, config.tis_cap) * A;
    }
    return 0.0f;
}

// A NaN is in no class, so that it stays in the gradient for all to see.
bool is_silenced(const Token& token, const GrpoConfig& config) {
    const auto [A, logp, ratio] = token;
    switch (config.silenced) {
        case Silenced::none:
            return false;
        case Silenced::negative_unlikely:
            return A < 0 && logp < kUnlikelyLogp;
        case Silenced::negative_likely:
            return A < 0 && logp >= kUnlikelyLogp;
        case Silenced::negative_above:
            return A < 0 && above(ratio, config);
        case Silenced::positive_below:
            return A > 0 && below(ratio, config);
        case Silenced::outside:
            return A != 0 && (above(ratio, config) || below(ratio, config));
    }
    return false;
}

}  // namespace

std::vector<float> group_advantages(const std::vector<float>& rewards, int group, float epsilon) {
    check(group >= 1 && rewards.size() % group == 0, rewards.size(), " rewards cannot be split into groups of ", group,
          ".");
    std::vector<float> advantages(rewards.size(), 0.0f);
    for (std::size_t first = 0; first < rewards.size(); first += group) {
        const auto begin = rewards.begin() + first, end = begin + group;
        // Equal rewards carry no signal; comparing them, not a small std, keeps rounding of the mean out.
        if (*std::min_element(begin, end) == *std::max_element(begin, end)) continue;
        float sum = 0;
        for (auto r = begin; r != end; ++r) sum += *r;
        const float mean = sum / static_cast<float>(group);
        float squares = 0;
        for (auto r = begin; r != end; ++r) squares += (*r - mean) * (*r - mean);
        const float deviation = std::sqrt(squares / static_cast<float>(group - 1));
        for (int g = 0; g < group; ++g) advantages[first + g] = (rewards[first + g] - mean) / (deviation + epsilon);
    }
    return advantages;
}

double zero_spread_fraction(const std::vector<float>& rewards, int group) {
    int equal = 0;
    for (std::size_t first = 0; first < rewards.size(); first += group) {
        const auto begin = rewards.begin() + first, end = begin + group;
        equal += *std::min_element(begin, end) == *std::max_element(begin, end);
    }
    return static_cast<double>(equal) / (static_cast<double>(rewards.size()) / group);
}

int counted_tokens(const TokenBatch& batch) {
    int tokens = 0;
    for (int length : batch.lengths) tokens += length;
    return tokens;
}

std::vector<float> policy_gradient(const TokenBatch& batch, const GrpoConfig& config, int tokens) {
    std::vector<float> gradient(batch.logp_trainer.size(), 0.0f);
    for_each_token(batch, [&](int sequence, std::size_t i) {
        const Token token = token_of(batch, sequence, i);
        if (token.A == 0.0f || is_silenced(token, config)) return;
        gradient[i] = -weight(token, config) / static_cast<float>(tokens);
    });
    return gradient;
}

SilencedShare silenced_share(const TokenBatch& batch, const GrpoConfig& config) {
    SilencedShare share;
    double sum = 0;
    for_each_token(batch, [&](int sequence, std::size_t i) {
        const Token token = token_of(batch, sequence, i);
        const double size = std::fabs(weight(token, config));
        sum += size;
        if (!is_silenced(token, config)) return;
        share.tokens += 1;
        share.weight += size;
    });
    share.tokens /= counted_tokens(batch);
    if (sum != 0) share.weight /= sum;
    return share;
}

MismatchStatistics mismatch_statistics(const TokenBatch& batch, const GrpoConfig& config) {
    MismatchStatistics s;
    const double tokens = counted_tokens(batch);
    double ratio_sum = 0, ratio_squares = 0;
    for_each_token(batch, [&](int, std::size_t i) {
        const float gap = batch.logp_trainer[i] - batch.logp_rollout[i];
        const double ratio = exact_exp(gap);
        s.gap_mean += std::fabs(gap);
        s.gap_max = std::max(s.gap_max, static_cast<double>(std::fabs(gap)));
        s.gap_over_ln2 += std::fabs(gap) > 0.69314718f;
        s.kl_k1 -= gap;
        s.kl_k3 += ratio - 1.0 - gap;
        s.ratio_max = std::max(s.ratio_max, ratio);
        s.clip_fraction += ratio < 1.0 - config.clip_low || ratio > 1.0 + config.clip_high;
        ratio_sum += ratio;
        ratio_squares += ratio * ratio;
        s.entropy += batch.entropy[i];
    });
    for (double* mean : {&s.gap_mean, &s.gap_over_ln2, &s.kl_k1, &s.kl_k3, &s.clip_fraction, &s.entropy})
        *mean /= tokens;
    s.ess = ratio_sum * ratio_sum / (tokens * ratio_squares);
    return s;
}

}  // namespace quads
