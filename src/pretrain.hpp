// The base model: supervised training on random problems with a right response, stopped while it still errs.
#pragma once

#include <functional>

#include "src/learner.hpp"

namespace quads {

struct PretrainRecord {
    int step;
    double loss;     // mean negative log-probability of a response token
    double success;  // mean probability of a right response
    float grad_norm;
};

// Trains until `success` reaches config.pretrain.target; the result has no optimiser state. Error if the target is not
// reached within max_steps.
//
// The response trained on is uniform among the N right ones of its problem, so N times its probability is an unbiased
// estimate of the probability of any of them (right responses with wrong notes are not counted). For a chain N = 1.
TrainingState pretrain(const Operations& operations, const RunConfig& config,
                       const std::function<void(const PretrainRecord&)>& progress);

}  // namespace quads
