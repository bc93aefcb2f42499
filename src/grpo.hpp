// GRPO (Shao et al. 2024), on the host and in plain loops: group-normalised advantages, the clipped token objective
// with the rollout engine's log-probabilities in the denominator, and what there is to know about the mismatch.
//
//   A[p,g]    = (r[p,g] - mean_g r) / (std_g r + epsilon)          unbiased std; exactly 0 where all rewards are equal
//   ratio     = exp(clamp(logp_trainer - logp_rollout, -20, 20))
//   objective = (1 / tokens) * sum over tokens of min(ratio A, clip(ratio, 1 - low, 1 + high) A)
// The mean is over all tokens of the batch, so splitting a batch into parts changes no gradient. No KL term.
#pragma once

#include <vector>

#include "src/config.hpp"

namespace quads {

// Tokens to which the trainer gives a probability below 0.1 are unlikely ones.
constexpr double kUnlikelyLogp = -2.302585092994046;  // ln 0.1

// rewards (P * G), group after group; the result has the same layout. A group of one gets 0.
std::vector<float> group_advantages(const std::vector<float>& rewards, int group, float epsilon);

// Share of groups whose rewards are all equal: they give no gradient.
double zero_spread_fraction(const std::vector<float>& rewards, int group);

// The tokens of a batch, (sequences, n) each but for `advantages` and `lengths` (sequences).
struct TokenBatch {
    int sequences, n;
    std::vector<float> logp_trainer, logp_rollout;
    std::vector<float> entropy;  // of the trainer, where the token was drawn
    std::vector<float> advantages;
    std::vector<int> lengths;  // tokens beyond the length are left out by position, whatever they hold
};

// d loss / d logp_trainer, (sequences, n), loss = -objective. Left-out tokens get exactly 0 and do not count. `tokens`
// is the number of counted tokens of the whole batch, of which this may be a part. Silenced tokens get 0 and do count.
std::vector<float> policy_gradient(const TokenBatch& batch, const GrpoConfig& config, int tokens);

// What config.silenced takes away: tokens of the class as a share of the counted ones, and their share of the sum of
// |gradient| that there would be without it; 0 where that sum is 0, NaN where a ratio is NaN.
struct SilencedShare {
    double tokens = 0, weight = 0;
};
SilencedShare silenced_share(const TokenBatch& batch, const GrpoConfig& config);

int counted_tokens(const TokenBatch& batch);

// Statistics over the counted tokens, before any clamp or clip. gap = logp_trainer - logp_rollout.
struct MismatchStatistics {
    double gap_mean = 0;       // mean |gap|
    double gap_max = 0;        // max |gap|
    double gap_over_ln2 = 0;   // share of tokens with |gap| > ln 2
    double kl_k1 = 0;          // mean -gap: KL(rollout || trainer), Schulman's k1
    double kl_k3 = 0;          // mean exp(gap) - 1 - gap: k3
    double ratio_max = 0;      // max exp(gap)
    double clip_fraction = 0;  // share of ratios outside [1 - clip_low, 1 + clip_high]
    double ess = 0;            // effective sample size, (sum ratio)^2 / (tokens * sum ratio^2)
    double entropy = 0;        // mean
};
MismatchStatistics mismatch_statistics(const TokenBatch& batch, const GrpoConfig& config);

}  // namespace quads
