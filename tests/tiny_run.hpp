// A model and a run small enough to be trained many times in a test.
#pragma once

#include "src/learner.hpp"

inline quads::RunConfig tiny_run(quads::Mode mode = quads::Mode::quads) {
    quads::RunConfig config;
    config.mode = mode;
    config.steps = 6;
    config.checkpoint_every = 2;
    config.model.width = 32;
    config.model.layers = 2;
    config.model.heads = 2;
    config.model.experts = 4;
    config.model.expert_hidden = 32;
    config.grpo.prompts = 4;
    config.grpo.group = 4;
    config.evaluation.every = 3;
    config.evaluation.responses = 1;
    return config;
}

// The problems and right responses of one batch.
struct TinyBatch {
    explicit TinyBatch(const quads::RunConfig& config)
        : tree(quads::task_tree(config.task, config.grpo.prompts, config.grpo.group)) {
        for (int p = 0; p < tree.prompts; ++p) {
            problems.push_back(quads::random_problem(config.task, 5, 1, 0, p, 0));
            for (int g = 0; g < tree.group; ++g) {
                std::vector<int> response = problems.back().response;
                response[g % response.size()] = g;  // siblings differ
                responses.insert(responses.end(), response.begin(), response.end());
            }
        }
    }
    quads::SequenceTree tree;
    std::vector<quads::Problem> problems;
    std::vector<int> responses;
};
