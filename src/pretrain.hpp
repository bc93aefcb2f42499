// The base model: supervised training on random correct chains, stopped while it still errs.
#pragma once

#include <functional>

#include "src/learner.hpp"

namespace quads {

struct PretrainRecord {
    int step;
    double loss;               // mean negative log-probability of a response token
    double chain_probability;  // mean probability of a whole correct response
    float grad_norm;
};

// Trains until the mean probability of a whole correct response reaches config.pretrain.target; the result has no
// optimiser state. Error if the target is not reached within max_steps.
TrainingState pretrain(const Operations& operations, const RunConfig& config,
                       const std::function<void(const PretrainRecord&)>& progress);

}  // namespace quads
