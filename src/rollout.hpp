// The rollout engine: samples responses with a KV cache, prompt rows first and then one token of all responses at a
// time.
#pragma once

#include <memory>
#include <vector>

#include "src/model.hpp"
#include "src/task.hpp"

namespace quads {

// n = tree.response + 1 tokens of each of the prompts * group responses, and what the engine itself gave them.
struct Responses {
    int n;
    std::vector<int> tokens;  // (P * G, n)
    std::vector<float> logp;  // (P * G, n) log-probabilities at the sampling temperature
};

// The tree of a GRPO batch of the task: the last response token is sampled but never fed.
SequenceTree task_tree(const TaskConfig& task, int prompts, int group);

// Tokens and positions of every row of the tree: the prompt's, then those of its responses that are fed.
std::vector<int> tree_tokens(const SequenceTree& tree, const std::vector<Problem>& problems,
                             const std::vector<int>& responses);
std::vector<int> tree_positions(const SequenceTree& tree);

class RolloutEngine {
public:
    RolloutEngine(const Operations& operations, const ModelConfig& config, const Numerics& numerics, SequenceTree tree);

    // Weight sync: makes this engine's weights from the FP32 master weights, which must stay alive.
    void synchronize(const float* master) { weights_.synchronize(master); }

    // Samples tree.group responses to each problem's prompt. (seed, step) and the response's index name the
    // random numbers.
    Responses generate(const std::vector<Problem>& problems, float temperature, std::uint32_t seed, std::uint32_t step);

    // Log-probabilities of given responses, computed by the very passes that generate runs.
    Responses score(const std::vector<Problem>& problems, const std::vector<int>& tokens, float temperature);

    // Of the last generate or score.
    const EngineTrace& trace() const { return trace_; }

private:
    Responses run(const std::vector<Problem>& problems, float temperature, std::uint32_t seed, std::uint32_t step,
                  const std::vector<int>* given);

    const Operations& op_;
    ModelConfig config_;
    SequenceTree tree_;
    Model model_;
    EngineWeights weights_;
    KvCache cache_;
    EngineTrace trace_;
    Activations activations_;
    Buffer<int> tokens_, positions_,
        rows_;                      // inputs of every pass, one after the other: prompts, then n - 1 times P * G
    Buffer<int> sampled_row_;       // (P * G) row of the prompt pass that a response starts from
    Buffer<int> identity_;          // (P * G) 0, 1, 2, ...
    Buffer<int> sampled_;           // (n, P * G)
    Buffer<float> sampled_logp_;    // (n, P * G)
    Buffer<float> logp_, entropy_;  // (rows of a pass, V), (rows of a pass)
};

}  // namespace quads
