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

}  // namespace

GapReport measure_gap(const Operations& operations, const RunConfig& config, const std::vector<float>& parameters) {
    const SequenceTree tree = task_tree(config.task, config.grpo.prompts, config.grpo.group);
    const Numerics trainer = trainer_numerics(config.mode, config.quantization);
    const Numerics rollout = rollout_numerics(config.mode, config.quantization);
    const Task task(config.task, config.heldout);
    const std::vector<Problem> problems = task.training_problems(config.seed, 0, tree.prompts);

    Learner learner(operations, config.model, trainer, tree, config.optimizer);
    learner.load({parameters, {}, {}, 0});
    RolloutEngine engine(operations, config.model, rollout, tree);
    engine.synchronize(learner.master());
    const float temperature = config.grpo.temperature;
    const Responses responses = engine.generate(problems, temperature, config.seed, 0);
    const TrainerScores scores = learner.score(problems, responses.tokens, temperature, nullptr);

    GapReport report;
    report.router_flip_fraction = learner.router_flip_fraction(engine.trace());
    report.code_flip_fraction = learner.code_flip_fraction(engine.trace());

    // The rollout engine with some of its factors taken from the trainer.
    const auto rollout_with = [&](WeightFormat weights, ActivationFormat activations) {
        Numerics mixed = rollout;
        mixed.weights = weights;
        mixed.activations = activations;
        RolloutEngine other(operations, config.model, mixed, tree);
        other.synchronize(learner.master());
        return other.score(problems, responses.tokens, temperature).logp;
    };
    const std::vector<float> drifted = rollout_with(trainer.weights, trainer.activations);
    const std::vector<float> rollout_weights = rollout_with(rollout.weights, trainer.activations);
    report.total = term(scores.logp, responses.logp);
    report.num = term(scores.logp, drifted);
    report.weight = term(drifted, rollout_weights);
    report.act = term(rollout_weights, responses.logp);
    return report;
}

}  // namespace quads
