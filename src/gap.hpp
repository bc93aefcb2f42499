// The gap between rollout and trainer, and where it comes from.
//
// All terms are of log-probabilities of the same tokens, sampled by the mode's own rollout engine. One factor is
// swapped at a time, in this order, so that the three terms add up to the gap token by token:
//   delta_num     trainer's weights and activations:  trainer engine  -> rollout engine (drift)
//   delta_weight  rollout engine, trainer's activations:  trainer's weights -> rollout's weights
//   delta_act     rollout engine, rollout's weights:  trainer's activations -> rollout's activations
// For a 16-bit trainer these are the definitions of the method's authors; delta_weight is exactly 0 under QAT.
#pragma once

#include "src/grpo.hpp"
#include "src/learner.hpp"

namespace quads {

// The log-probabilities that the terms are differences of, (P * G, n) each, all n tokens of every response: a term is a
// column minus the next one.
struct GapTokens {
    std::vector<float> trainer;          // the trainer
    std::vector<float> drifted;          // the rollout engine with the trainer's weights and activations
    std::vector<float> rollout_weights;  // the same with the rollout's weights
    std::vector<float> rollout;          // the rollout engine itself
};

struct GapTerm {
    double mean = 0, max = 0;  // of |difference of log-probabilities|
};

struct GapReport {
    GapTerm total, num, weight, act;
    Flips router_flips, code_flips;
    double unlikely_tokens = 0;  // share of the sampled tokens with a trainer probability below 0.1
    double unlikely_gap = 0;     // their share of the sum of |gap|; 0 where there is no gap
};

// The terms of given tokens; flips are left at 0. Error for columns of different lengths, no tokens, or a value that is
// not finite: a maximum would hide a NaN.
GapReport gap_report(const GapTokens& tokens);

// Takes the gap between a learner and a rollout engine apart, as often as wanted: holds the two engines in between.
class GapMeter {
public:
    GapMeter(const Operations& operations, const ModelConfig& config, const Numerics& trainer, const Numerics& rollout,
             SequenceTree tree);

    // Syncs all engines with the learner's weights and samples responses to the problems; (seed, step) name the random
    // numbers. The learner and the rollout engine are those of the constructor's numerics and tree; what they last
    // scored and sampled is replaced, nothing else of their state.
    GapReport measure(Learner& learner, RolloutEngine& rollout, const std::vector<Problem>& problems, float temperature,
                      std::uint32_t seed, std::uint32_t step);

    const GapTokens& tokens() const { return tokens_; }  // of the last measure

private:
    RolloutEngine drifted_, rollout_weights_;
    GapTokens tokens_;
};

// One batch of config.grpo.prompts training problems of step 0, under config.mode.
GapReport measure_gap(const Operations& operations, const RunConfig& config, const std::vector<float>& parameters);

}  // namespace quads
