#include "src/rollout.hpp"

#include <algorithm>
#include <numeric>

namespace quads {

SequenceTree task_tree(const TaskConfig& task, int prompts, int group) {
    return {prompts, prompt_tokens(task), group, response_tokens(task) - 1};
}

std::vector<int> tree_tokens(const SequenceTree& tree, const std::vector<Problem>& problems,
                             const std::vector<int>& responses) {
    const int n = tree.response + 1;
    std::vector<int> tokens;
    tokens.reserve(tree.rows());
    for (int p = 0; p < tree.prompts; ++p) {
        tokens.insert(tokens.end(), problems[p].prompt.begin(), problems[p].prompt.end());
        for (int g = 0; g < tree.group; ++g) {
            const auto first = responses.begin() + static_cast<std::ptrdiff_t>(p * tree.group + g) * n;
            tokens.insert(tokens.end(), first, first + tree.response);
        }
    }
    return tokens;
}

std::vector<int> tree_positions(const SequenceTree& tree) {
    std::vector<int> positions(tree.rows());
    for (int row = 0; row < tree.rows(); ++row) positions[row] = tree.position(row);
    return positions;
}

RolloutEngine::RolloutEngine(const Operations& operations, const ModelConfig& config, const Numerics& numerics,
                             SequenceTree tree)
    : op_(operations),
      config_(config),
      tree_(tree),
      model_(operations, config),
      weights_(operations, config, numerics),
      cache_(operations, config, tree.rows()),
      trace_(operations, config, tree.rows()),
      activations_(operations, config, tree.prompts * std::max(tree.prompt, tree.group), false) {
    const int N = tree.prompts * tree.group, prompt_rows = tree.prompts * tree.prompt;
    std::vector<int> positions, rows, sampled_row;
    for (int p = 0; p < tree.prompts; ++p) {
        for (int i = 0; i < tree.prompt; ++i) {
            positions.push_back(i);
            rows.push_back(p * tree.rows_per_prompt() + i);
        }
        for (int g = 0; g < tree.group; ++g) sampled_row.push_back(p * tree.prompt + tree.prompt - 1);
    }
    for (int j = 0; j < tree.response; ++j) {
        for (int n = 0; n < N; ++n) {
            positions.push_back(tree.prompt + j);
            rows.push_back(tree.response_row(n, j));
        }
    }
    std::vector<int> identity(N);
    std::iota(identity.begin(), identity.end(), 0);
    tokens_ = Buffer<int>(operations, prompt_rows);
    positions_ = Buffer<int>(operations, positions);
    rows_ = Buffer<int>(operations, rows);
    sampled_row_ = Buffer<int>(operations, sampled_row);
    identity_ = Buffer<int>(operations, identity);
    sampled_ = Buffer<int>(operations, static_cast<std::size_t>(tree.response + 1) * N);
    sampled_logp_ = Buffer<float>(operations, sampled_.size());
    logp_ = Buffer<float>(operations, static_cast<std::size_t>(activations_.max_rows) * config.vocabulary);
    entropy_ = Buffer<float>(operations, activations_.max_rows);
}

Responses RolloutEngine::generate(const std::vector<Problem>& problems, float temperature, std::uint32_t seed,
                                  std::uint32_t step) {
    return run(problems, temperature, seed, step, nullptr);
}

Responses RolloutEngine::score(const std::vector<Problem>& problems, const std::vector<int>& tokens,
                               float temperature) {
    return run(problems, temperature, 0, 0, &tokens);
}

Responses RolloutEngine::run(const std::vector<Problem>& problems, float temperature, std::uint32_t seed,
                             std::uint32_t step, const std::vector<int>* given) {
    const int n = tree_.response + 1, N = tree_.prompts * tree_.group, V = config_.vocabulary;
    const int prompt_rows = tree_.prompts * tree_.prompt;
    check(static_cast<int>(problems.size()) == tree_.prompts, "The rollout engine is built for ", tree_.prompts,
          " prompts, but was given ", problems.size(), ".");
    std::vector<int> prompts;
    for (const Problem& p : problems) prompts.insert(prompts.end(), p.prompt.begin(), p.prompt.end());
    tokens_.upload(prompts);
    if (given) {
        // Response-major to token-major, the order in which they are fed.
        std::vector<int> fed(given->size());
        for (int i = 0; i < N * n; ++i) fed[(i % n) * N + i / n] = (*given)[i];
        sampled_.upload(fed);
    }
    std::vector<float> given_logp;

    Pass pass{prompt_rows, tokens_.data(), positions_.data(), rows_.data(), tree_, nullptr};
    for (int j = 0; j < n; ++j) {
        model_.forward(weights_, pass, activations_, cache_, &trace_);
        op_.log_softmax(activations_.logits.data(), temperature, pass.T, V, logp_.data(), entropy_.data());
        const Buffer<int>& row = j == 0 ? sampled_row_ : identity_;
        int* sampled = sampled_.data() + static_cast<std::size_t>(j) * N;
        if (given) {
            const std::vector<float> logp = logp_.download(static_cast<std::size_t>(pass.T) * V);
            for (int i = 0; i < N; ++i) {
                const int source = j == 0 ? i / tree_.group * tree_.prompt + tree_.prompt - 1 : i;
                given_logp.push_back(logp[source * V + (*given)[i * n + j]]);
            }
        } else {
            op_.sample(logp_.data(), row.data(), N, V, seed, step, 0, j, sampled,
                       sampled_logp_.data() + static_cast<std::size_t>(j) * N);
        }
        const std::size_t next = prompt_rows + static_cast<std::size_t>(j) * N;
        pass = {N, sampled, positions_.data() + next, rows_.data() + next, tree_, nullptr};
    }

    const std::vector<int> tokens = sampled_.download();
    const std::vector<float> logp = given ? given_logp : sampled_logp_.download();
    Responses responses{n, std::vector<int>(tokens.size()), std::vector<float>(tokens.size())};
    for (int i = 0; i < N * n; ++i) {
        responses.tokens[i] = tokens[(i % n) * N + i / n];
        responses.logp[i] = logp[(i % n) * N + i / n];
    }
    return responses;
}

}  // namespace quads
