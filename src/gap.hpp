// The gap between rollout and trainer, and where it comes from.
//
// All terms are of log-probabilities of the same tokens, sampled by the mode's own rollout engine. One factor is
// swapped at a time, in this order, so that the three terms add up to the gap token by token:
//   delta_num     trainer's weights and activations:  trainer engine  -> rollout engine (drift)
//   delta_weight  rollout engine, trainer's activations:  trainer's weights -> rollout's weights
//   delta_act     rollout engine, rollout's weights:  trainer's activations -> rollout's activations
// For a 16-bit trainer these are the definitions of the method's authors; delta_weight is exactly 0 under QAT.
#pragma once

#include "src/learner.hpp"

namespace quads {

struct GapTerm {
    double mean = 0, max = 0;  // of |difference of log-probabilities|
};

struct GapReport {
    GapTerm total, num, weight, act;
    double router_flip_fraction = 0, code_flip_fraction = 0;
};

// One batch of config.grpo.prompts training problems of step 0, under config.mode.
GapReport measure_gap(const Operations& operations, const RunConfig& config, const std::vector<float>& parameters);

}  // namespace quads
