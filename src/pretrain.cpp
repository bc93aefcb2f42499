#include "src/pretrain.hpp"

#include "reference/exact_math.hpp"

namespace quads {

TrainingState pretrain(const Operations& operations, const RunConfig& config,
                       const std::function<void(const PretrainRecord&)>& progress) {
    const PretrainConfig& pre = config.pretrain;
    const SequenceTree tree = task_tree(config.task, pre.sequences, 1);
    const int n = tree.response + 1;
    OptimizerConfig optimizer = config.optimizer;
    optimizer.learning_rate = pre.learning_rate;
    optimizer.warmup_steps = pre.warmup_steps;
    optimizer.decay = false;
    const Task task(config.task, config.heldout);
    Learner learner(operations, config.model, Numerics{}, tree, optimizer);
    learner.load({initial_parameters(config.model, config.seed), {}, {}, 0});

    const std::vector<float> gradient(static_cast<std::size_t>(pre.sequences) * n,
                                      -1.0f / static_cast<float>(pre.sequences * n));
    for (int step = 0; step < pre.max_steps; ++step) {
        // Steps of pretraining are told from those of GRPO by their high bit.
        const std::vector<Problem> problems = task.training_problems(config.seed, 0x40000000u + step, pre.sequences);
        std::vector<int> responses;
        for (const Problem& p : problems) responses.insert(responses.end(), p.response.begin(), p.response.end());
        const TrainerScores scores = learner.score(problems, responses, 1.0f, nullptr);
        PretrainRecord record{step, 0, 0, 0};
        for (int i = 0; i < pre.sequences; ++i) {
            float logp = 0;
            for (int j = 0; j < n; ++j) logp += scores.logp[static_cast<std::size_t>(i) * n + j];
            record.loss -= logp / n / pre.sequences;
            const double probability = exact_exp(logp) * right_answers(config.task, problems[i]);
            record.success += probability / static_cast<double>(pre.sequences);
        }
        if (record.success >= pre.target) {
            progress(record);
            return {learner.state().parameters, {}, {}, 0};
        }
        record.grad_norm = learner.update(gradient, pre.balance, learning_rate_at(optimizer, step, pre.max_steps));
        progress(record);
    }
    fail("Pretraining did not reach a success of ", pre.target, " within ", pre.max_steps,
         " steps. Raise pretrain.max_steps or lower pretrain.target.");
}

}  // namespace quads
