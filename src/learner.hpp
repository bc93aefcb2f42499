// The training side: master weights, the trainer's engine, backward and optimiser. Used by GRPO and by pretraining.
#pragma once

#include "src/rollout.hpp"

namespace quads {

// Master weights and optimiser state on the host, as checkpoints hold them.
struct TrainingState {
    std::vector<float> parameters;              // flat, see ParameterLayout
    std::vector<float> adam_mean, adam_square;  // the same layout; empty in a base checkpoint
    int step = 0;                               // optimiser steps done
};

// Log-probabilities of the responses under the trainer, (P * G, n), and the entropy of the distribution each was drawn
// from.
struct TrainerScores {
    std::vector<float> logp, entropy;
};

// Share of choices in which two engines differ: over all layers, and of each.
struct Flips {
    double fraction = 0;
    std::vector<double> by_layer;
};

class Learner {
public:
    Learner(const Operations& operations, const ModelConfig& config, const Numerics& numerics, SequenceTree tree,
            const OptimizerConfig& optimizer);

    void load(const TrainingState& state);
    TrainingState state() const;

    // The FP32 master weights, in the device's memory.
    const float* master() const { return parameters_.data(); }

    // Forward over the whole tree. With a replay, routers follow the given expert choice, (L, rows, S) in the device's
    // memory.
    TrainerScores score(const std::vector<Problem>& problems, const std::vector<int>& responses, float temperature,
                        const int* replay);

    // Backward and one AdamW step for the batch just scored. `gradient` is d loss / d logp, (P * G, n); `balance` the
    // weight of the load-balance loss, averaged over layers. Returns the gradient norm before clipping.
    float update(const std::vector<float>& gradient, float balance, float learning_rate);

    // Of the scored rows' expert choices and FP4 activation codes (of the experts' input, quantised per token), those
    // that differ from another engine's over the same rows.
    Flips router_flips(const EngineTrace& other) const;
    Flips code_flips(const EngineTrace& other);

private:
    // Row of the tree whose logits the j-th token of response (p, g) is drawn from.
    int source_row(int sequence, int j) const;

    const Operations& op_;
    ModelConfig config_;
    SequenceTree tree_;
    OptimizerConfig optimizer_;
    Model model_;
    EngineWeights weights_;
    KvCache cache_;
    Activations activations_;
    Buffer<float> parameters_, gradient_, adam_mean_, adam_square_;
    Buffer<float> norm_scratch_, norm_;
    Buffer<int> tokens_, positions_, rows_, flips_;
    Buffer<float> logp_, entropy_, logp_weights_, dlogits_;  // (T, V), (T), (T, V), (T, V)
    std::vector<int> responses_;                             // of the batch just scored
    float temperature_ = 1.0f;
    int step_ = 0;
    Pass pass_;
};

// Learning rate of step 0 .. steps-1: linear warm-up, then, with decay, times 1 - step / steps.
float learning_rate_at(const OptimizerConfig& optimizer, int step, int steps);

}  // namespace quads
