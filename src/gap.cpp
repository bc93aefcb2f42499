#include "src/gap.hpp"

#include <algorithm>
#include <cmath>

namespace quads {
namespace {

GapTerm term(const std::vector<float>& from, const std::vector<float>& to) {
    GapTerm result;
    for (std::size_t i = 0; i < from.size(); ++i) {
        const double difference = std::fabs(from[i] - to[i]);
        result.mean += difference / static_cast<double>(from.size());
        result.max = std::max(result.max, difference);
    }
    return result;
}

void check_column(const std::vector<float>& column, const char* name, std::size_t size) {
    check(column.size() == size && size > 0, "The ", name, " gave ", column.size(), " log-probabilities, expected ",
          size, " and more than none; score the same responses with every engine.");
    for (std::size_t i = 0; i < size; ++i) {
        check(std::isfinite(column[i]), "The ", name, " gave token ", i, " the log-probability ", column[i],
              ", expected a finite number; check the checkpoint's weights.");
    }
}

// `rollout` with two of its factors replaced.
Numerics mixed(Numerics rollout, WeightFormat weights, ActivationFormat activations) {
    rollout.weights = weights;
    rollout.activations = activations;
    return rollout;
}

}  // namespace

GapReport gap_report(const GapTokens& tokens) {
    const std::size_t size = tokens.trainer.size();
    check_column(tokens.trainer, "trainer", size);
    check_column(tokens.drifted, "rollout engine with the trainer's formats", size);
    check_column(tokens.rollout_weights, "rollout engine with the trainer's activations", size);
    check_column(tokens.rollout, "rollout engine", size);
    GapReport report;
    report.total = term(tokens.trainer, tokens.rollout);
    report.num = term(tokens.trainer, tokens.drifted);
    report.weight = term(tokens.drifted, tokens.rollout_weights);
    report.act = term(tokens.rollout_weights, tokens.rollout);
    double sum = 0, unlikely_sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
        const double gap = std::fabs(tokens.trainer[i] - tokens.rollout[i]);
        sum += gap;
        if (tokens.trainer[i] >= kUnlikelyLogp) continue;
        unlikely_sum += gap;
        report.unlikely_tokens += 1.0 / static_cast<double>(size);
    }
    if (sum > 0) report.unlikely_gap = unlikely_sum / sum;
    return report;
}

GapMeter::GapMeter(const Operations& operations, const ModelConfig& config, const Numerics& trainer,
                   const Numerics& rollout, SequenceTree tree)
    : drifted_(operations, config, mixed(rollout, trainer.weights, trainer.activations), tree),
      rollout_weights_(operations, config, mixed(rollout, rollout.weights, trainer.activations), tree) {}

GapReport GapMeter::measure(Learner& learner, RolloutEngine& rollout, const std::vector<Problem>& problems,
                            float temperature, std::uint32_t seed, std::uint32_t step) {
    for (RolloutEngine* engine : {&rollout, &drifted_, &rollout_weights_}) engine->synchronize(learner.master());
    Responses sampled = rollout.generate(problems, temperature, seed, step);
    tokens_.rollout = std::move(sampled.logp);
    tokens_.trainer = learner.score(problems, sampled.tokens, temperature, nullptr).logp;
    tokens_.drifted = drifted_.score(problems, sampled.tokens, temperature).logp;
    tokens_.rollout_weights = rollout_weights_.score(problems, sampled.tokens, temperature).logp;
    GapReport report = gap_report(tokens_);
    report.router_flips = learner.router_flips(rollout.trace());
    report.code_flips = learner.code_flips(rollout.trace());
    return report;
}

GapReport measure_gap(const Operations& operations, const RunConfig& config, const std::vector<float>& parameters) {
    const SequenceTree tree = task_tree(config.task, config.grpo.prompts, config.grpo.group);
    const Numerics trainer = trainer_numerics(config.mode, config.quantization);
    const Numerics rollout = rollout_numerics(config.mode, config.quantization);
    const Task task(config.task, config.heldout);
    Learner learner(operations, config.model, trainer, tree, config.optimizer);
    learner.load({parameters, {}, {}, 0});
    RolloutEngine engine(operations, config.model, rollout, tree);
    return GapMeter(operations, config.model, trainer, rollout, tree)
        .measure(learner, engine, task.training_problems(config.seed, 0, tree.prompts), config.grpo.temperature,
                 config.seed, 0);
}

}  // namespace quads
