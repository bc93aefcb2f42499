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
        const float A = batch.advantages[sequence];
        if (A == 0.0f) return;
        const float log_ratio =
            std::clamp(batch.logp_trainer[i] - batch.logp_rollout[i], -kLogRatioLimit, kLogRatioLimit);
        const float mismatch = exact_exp(log_ratio);
        float weight = 0;  // d objective / d logp, times tokens
        switch (config.correction) {
            case Correction::rollout: {
                // The minimum follows the clipped branch only where clipping lowers the objective; there the slope is
                // 0.
                const bool clipped = A > 0 ? mismatch > 1.0f + config.clip_high : mismatch < 1.0f - config.clip_low;
                weight = clipped ? 0.0f : mismatch * A;
                break;
            }
            case Correction::none:
                weight = A;
                break;
            case Correction::tis:
                weight = std::min(mismatch, config.tis_cap) * A;
                break;
        }
        gradient[i] = -weight / static_cast<float>(tokens);
    });
    return gradient;
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
