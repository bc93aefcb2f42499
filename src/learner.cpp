#include "src/learner.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quads {
namespace {

// Flips of each layer out of `choices` a layer.
Flips shares(const std::vector<std::int64_t>& flips, double choices) {
    Flips result;
    std::int64_t all = 0;
    for (std::int64_t layer : flips) {
        all += layer;
        result.by_layer.push_back(static_cast<double>(layer) / choices);
    }
    result.fraction = static_cast<double>(all) / (choices * static_cast<double>(flips.size()));
    return result;
}

}  // namespace

float learning_rate_at(const OptimizerConfig& optimizer, int step, int steps) {
    float rate = optimizer.learning_rate;
    if (step < optimizer.warmup_steps) {
        rate *= static_cast<float>(step + 1) / static_cast<float>(optimizer.warmup_steps);
    }
    if (optimizer.decay) rate *= 1.0f - static_cast<float>(step) / static_cast<float>(steps);
    return rate;
}

Learner::Learner(const Operations& operations, const ModelConfig& config, const Numerics& numerics, SequenceTree tree,
                 const OptimizerConfig& optimizer)
    : op_(operations),
      config_(config),
      tree_(tree),
      optimizer_(optimizer),
      model_(operations, config),
      weights_(operations, config, numerics),
      cache_(operations, config, tree.rows()),
      activations_(operations, config, tree.rows(), true) {
    const std::size_t size = ParameterLayout(config).size, T = tree.rows(), V = config.vocabulary;
    for (Buffer<float>* buffer : {&parameters_, &gradient_, &adam_mean_, &adam_square_}) {
        *buffer = Buffer<float>(operations, size);
    }
    norm_scratch_ = Buffer<float>(operations, 2 * (size / 256 + 2));
    norm_ = Buffer<float>(operations, 1);
    std::vector<int> rows(T);
    std::iota(rows.begin(), rows.end(), 0);
    tokens_ = Buffer<int>(operations, T);
    positions_ = Buffer<int>(operations, tree_positions(tree));
    rows_ = Buffer<int>(operations, rows);
    flips_ = Buffer<int>(operations, T);
    for (Buffer<float>* buffer : {&logp_, &logp_weights_, &dlogits_}) *buffer = Buffer<float>(operations, T * V);
    entropy_ = Buffer<float>(operations, T);
    pass_ = {tree.rows(), tokens_.data(), positions_.data(), rows_.data(), tree, nullptr};
}

void Learner::load(const TrainingState& state) {
    check(state.parameters.size() == parameters_.size(), "The checkpoint holds ", state.parameters.size(),
          " parameters, but the configured model has ", parameters_.size(),
          ". Use the model configuration it was made with.");
    parameters_.upload(state.parameters);
    const std::vector<float> zeros(state.parameters.size(), 0.0f);
    adam_mean_.upload(state.adam_mean.empty() ? zeros : state.adam_mean);
    adam_square_.upload(state.adam_square.empty() ? zeros : state.adam_square);
    step_ = state.step;
}

TrainingState Learner::state() const {
    return {parameters_.download(), adam_mean_.download(), adam_square_.download(), step_};
}

int Learner::source_row(int sequence, int j) const {
    if (j > 0) return tree_.response_row(sequence, j - 1);
    return sequence / tree_.group * tree_.rows_per_prompt() + tree_.prompt - 1;
}

TrainerScores Learner::score(const std::vector<Problem>& problems, const std::vector<int>& responses, float temperature,
                             const int* replay) {
    const int T = tree_.rows(), V = config_.vocabulary, n = tree_.response + 1, N = tree_.prompts * tree_.group;
    responses_ = responses;
    temperature_ = temperature;
    tokens_.upload(tree_tokens(tree_, problems, responses));
    pass_.replay = replay;
    weights_.synchronize(parameters_.data());
    model_.forward(weights_, pass_, activations_, cache_, nullptr);
    op_.log_softmax(activations_.logits.data(), temperature, T, V, logp_.data(), entropy_.data());
    const std::vector<float> logp = logp_.download(), entropy = entropy_.download();
    TrainerScores scores;
    for (int i = 0; i < N * n; ++i) {
        const int row = source_row(i / n, i % n);
        scores.logp.push_back(logp[static_cast<std::size_t>(row) * V + responses[i]]);
        scores.entropy.push_back(entropy[row]);
    }
    return scores;
}

float Learner::update(const std::vector<float>& gradient, float balance, float learning_rate) {
    const int T = tree_.rows(), V = config_.vocabulary, n = tree_.response + 1;
    // The responses of a group share the row that their first token is drawn from, so weights are summed: ascending
    // sequence.
    std::vector<float> weights(static_cast<std::size_t>(T) * V, 0.0f);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        const int row = source_row(static_cast<int>(i) / n, static_cast<int>(i) % n);
        weights[static_cast<std::size_t>(row) * V + responses_[i]] += gradient[i];
    }
    logp_weights_.upload(weights);
    op_.log_softmax_backward(logp_.data(), logp_weights_.data(), temperature_, T, V, dlogits_.data());
    model_.backward(weights_, pass_, activations_, cache_, dlogits_.data(),
                    balance / static_cast<float>(config_.layers), gradient_.data());

    const std::int64_t size = static_cast<std::int64_t>(gradient_.size());
    op_.sum_squares(gradient_.data(), size, norm_scratch_.data(), norm_.data());
    const float norm = std::sqrt(norm_.download()[0]);
    ++step_;
    AdamwStep step;
    step.learning_rate = learning_rate;
    step.beta1 = optimizer_.beta1;
    step.beta2 = optimizer_.beta2;
    step.epsilon = optimizer_.epsilon;
    step.weight_decay = optimizer_.weight_decay;
    // beta^t by repeated multiplication: the same bits everywhere, unlike a library's pow.
    double power1 = 1, power2 = 1;
    for (int t = 0; t < step_; ++t) {
        power1 *= optimizer_.beta1;
        power2 *= optimizer_.beta2;
    }
    step.correction1 = static_cast<float>(1 - power1);
    step.correction2 = static_cast<float>(1 - power2);
    step.gradient_scale = std::min(1.0f, optimizer_.max_gradient_norm / (norm + 1e-6f));
    op_.adamw(parameters_.data(), gradient_.data(), adam_mean_.data(), adam_square_.data(), size, step);
    return norm;
}

Flips Learner::router_flips(const EngineTrace& other) const {
    const std::vector<int> theirs = other.experts.download();
    const int S = config_.active_experts, rows = tree_.rows();
    std::vector<std::int64_t> flips(config_.layers, 0);
    for (int l = 0; l < config_.layers; ++l) {
        const std::vector<int> ours = activations_.layers[l].experts.download();
        for (int row = 0; row < rows; ++row) {
            // A flip is an expert the other engine did not choose; the order of the slots does not matter.
            const int* mine = &ours[static_cast<std::size_t>(row) * S];
            const int* their = &theirs[(static_cast<std::size_t>(l) * rows + row) * S];
            for (int s = 0; s < S; ++s) flips[l] += std::find(their, their + S, mine[s]) == their + S;
        }
    }
    return shares(flips, static_cast<double>(rows) * S);
}

Flips Learner::code_flips(const EngineTrace& other) {
    const int T = tree_.rows(), D = config_.width;
    std::vector<std::int64_t> flips(config_.layers, 0);
    for (int l = 0; l < config_.layers; ++l) {
        op_.count_code_flips(activations_.layers[l].expert_input.data(), other.expert_input[l].data(), T, D,
                             flips_.data());
        for (int row_flips : flips_.download()) flips[l] += row_flips;
    }
    return shares(flips, static_cast<double>(T) * D);
}

}  // namespace quads
