#include "src/train.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "src/files.hpp"

namespace quads {
namespace {

// Evaluations and gap decompositions draw from steps that training never reaches.
constexpr std::uint32_t kEvaluationStream = 0x80000000u;
constexpr std::uint32_t kDecompositionStream = 0x20000000u;

std::vector<float> rewards_of(const TaskConfig& task, const std::vector<Problem>& problems, const Responses& responses,
                              int group) {
    std::vector<float> rewards;
    for (std::size_t i = 0; i < problems.size() * group; ++i) {
        rewards.push_back(reward(task, problems[i / group], &responses.tokens[i * responses.n], responses.n));
    }
    return rewards;
}

double mean(const std::vector<float>& values) {
    double sum = 0;
    for (float value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

// The engines of one run and the one step that GRPO is.
class GrpoRun {
public:
    GrpoRun(const Operations& operations, const RunConfig& config)
        : config_(config),
          task_(config.task, config.heldout),
          tree_(task_tree(config.task, config.grpo.prompts, config.grpo.group)),
          learner_(operations, config.model, trainer_numerics(config.mode, config.quantization), tree_,
                   config.optimizer),
          rollout_(operations, config.model, rollout_numerics(config.mode, config.quantization), tree_),
          evaluation_(operations, config, rollout_numerics(config.mode, config.quantization), task_) {
        if (config.evaluation.decomposition_every > 0) {
            gap_meter_.emplace(operations, config.model, trainer_numerics(config.mode, config.quantization),
                               rollout_numerics(config.mode, config.quantization), tree_);
        }
    }

    Learner& learner() { return learner_; }

    StepRecord step(int step) {
        const auto start = std::chrono::steady_clock::now();
        const GrpoConfig& grpo = config_.grpo;
        StepRecord record;
        record.step = step;
        if (gap_meter_ && (step % config_.evaluation.decomposition_every == 0 || step + 1 == config_.steps)) {
            const std::uint32_t stream = kDecompositionStream + static_cast<std::uint32_t>(step);
            record.gap = gap_meter_->measure(learner_, rollout_,
                                             task_.training_problems(config_.seed, stream, grpo.prompts),
                                             grpo.temperature, config_.seed, stream);
        }

        // 1. Weight sync, then the rollout engine answers each prompt `group` times.
        const std::vector<Problem> problems = task_.training_problems(config_.seed, step, grpo.prompts);
        rollout_.synchronize(learner_.master());
        const Responses responses = rollout_.generate(problems, grpo.temperature, config_.seed, step);

        // 2. Rewards become advantages within each group.
        const std::vector<float> rewards = rewards_of(config_.task, problems, responses, grpo.group);
        TokenBatch batch;
        batch.sequences = grpo.prompts * grpo.group;
        batch.n = responses.n;
        batch.advantages = group_advantages(rewards, grpo.group, grpo.advantage_epsilon);
        for (int i = 0; i < batch.sequences; ++i) {
            batch.lengths.push_back(response_length(&responses.tokens[static_cast<std::size_t>(i) * batch.n], batch.n));
        }

        // 3. The trainer scores the same tokens; what differs is the mismatch.
        const int* replay = grpo.routing_replay ? rollout_.trace().experts.data() : nullptr;
        TrainerScores scores = learner_.score(problems, responses.tokens, grpo.temperature, replay);
        batch.logp_rollout = responses.logp;
        batch.logp_trainer = std::move(scores.logp);
        batch.entropy = std::move(scores.entropy);
        record.reward = mean(rewards);
        record.zero_spread_groups = zero_spread_fraction(rewards, grpo.group);
        record.tokens = counted_tokens(batch);
        record.mismatch = mismatch_statistics(batch, grpo);
        if (grpo.silenced != Silenced::none) record.silenced = silenced_share(batch, grpo);
        record.router_flip_fraction = learner_.router_flips(rollout_.trace()).fraction;
        record.code_flip_fraction = learner_.code_flips(rollout_.trace()).fraction;

        // 4. One optimiser step on the clipped objective.
        record.grad_norm = learner_.update(policy_gradient(batch, grpo, record.tokens), grpo.balance,
                                           learning_rate_at(config_.optimizer, step, config_.steps));

        if ((step + 1) % config_.evaluation.every == 0 || step + 1 == config_.steps) {
            record.heldout_pass1 = evaluation_.pass1(learner_.master(), static_cast<std::uint32_t>(step));
        }
        record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        return record;
    }

private:
    const RunConfig& config_;
    Task task_;
    SequenceTree tree_;
    Learner learner_;
    RolloutEngine rollout_;
    HeldoutEvaluation evaluation_;
    std::optional<GapMeter> gap_meter_;
};

// The checkpoint to continue from, with the log cut to its step; Error where the files do not fit this run.
Checkpoint resumed(const RunConfig& config, const RunFiles& files, std::vector<StepRecord>& records) {
    Checkpoint checkpoint = load_checkpoint(files.checkpoint, config.model);
    check(checkpoint.state.step <= config.steps, "The run in '", files.checkpoint, "' has done ", checkpoint.state.step,
          " steps, but only ", config.steps,
          " are asked for. Ask for as many as it was started with, or start a new run.");
    // A run killed before its first line has a checkpoint of step 0 and no log.
    if (checkpoint.state.step == 0 && !std::ifstream(files.log).good())
        RunLogWriter::create(files.log, to_json(config));
    const RunLog log = read_run_log(files.log);
    const std::string wanted = to_json(config);
    check(log.config == wanted, "The log '", files.log,
          "' belongs to another configuration. Resume with the options the run ",
          "was started with.\n  log:    ", log.config, "\n  wanted: ", wanted);
    check(static_cast<int>(log.steps.size()) >= checkpoint.state.step, "The log '", files.log, "' ends after ",
          log.steps.size(), " steps, before the checkpoint's ", checkpoint.state.step,
          ". Restore the log or start a new run.");
    for (int i = 0; i < checkpoint.state.step; ++i) records.push_back(step_of(log.steps[i]));
    return checkpoint;
}

// Only the weights of the base: a run begins with fresh optimiser state.
TrainingState base_state(const RunConfig& config) {
    return {load_checkpoint(config.base, config.model).state.parameters, {}, {}, 0};
}

void refuse_existing(const std::string& path) {
    check(!std::ifstream(path).good(), "'", path, "' exists already and would be overwritten. Continue that run with ",
          "--resume, or choose another path.");
}

}  // namespace

HeldoutEvaluation::HeldoutEvaluation(const Operations& operations, const RunConfig& config, const Numerics& numerics,
                                     const Task& task)
    : config_(config),
      task_(task),
      prompts_(std::min<int>(config.grpo.prompts, static_cast<int>(task.heldout().size()))),
      engine_(operations, config.model, numerics, task_tree(config.task, prompts_, config.evaluation.responses)) {}

double HeldoutEvaluation::pass1(const float* master, std::uint32_t stream) {
    engine_.synchronize(master);
    const std::vector<Problem>& heldout = task_.heldout();
    double sum = 0;
    int parts = 0;
    // Whole parts of the engine's size; a remainder is left out, so that every part has the same shape.
    for (std::size_t first = 0; first + prompts_ <= heldout.size(); first += prompts_, ++parts) {
        const std::vector<Problem> problems(heldout.begin() + first, heldout.begin() + first + prompts_);
        const std::uint32_t step = kEvaluationStream + stream * 4096u + static_cast<std::uint32_t>(parts);
        const Responses responses = engine_.generate(problems, 1.0f, config_.seed, step);
        sum += mean(rewards_of(config_.task, problems, responses, config_.evaluation.responses));
    }
    return sum / parts;
}

std::vector<StepRecord> train(const Operations& operations, const RunConfig& config, const RunFiles& files,
                              const std::function<void(const StepRecord&)>& progress) {
    GrpoRun run(operations, config);
    std::vector<StepRecord> records;
    if (files.resume) {
        run.learner().load(resumed(config, files, records).state);
    } else {
        refuse_existing(files.log);
        refuse_existing(files.checkpoint);
        run.learner().load(base_state(config));
        // The log's folder is tried first: an unwritable one is found before anything is computed.
        create_parent_folder(files.log);
        create_parent_folder(files.checkpoint);
        save_checkpoint(files.checkpoint, {config, run.learner().state()});
    }
    RunLogWriter log = files.resume ? RunLogWriter::resume(files.log, records.size())
                                    : RunLogWriter::create(files.log, to_json(config));
    for (int step = static_cast<int>(records.size()); step < config.steps; ++step) {
        records.push_back(run.step(step));
        log.append(record_of(records.back()));
        // After the log: a checkpoint never knows more steps than the log does.
        if ((step + 1) % config.checkpoint_every == 0 || step + 1 == config.steps) {
            save_checkpoint(files.checkpoint, {config, run.learner().state()});
        }
        progress(records.back());
    }
    return records;
}

void train_without_files(const Operations& operations, const RunConfig& config, int steps,
                         const std::function<void(const StepRecord&)>& progress) {
    GrpoRun run(operations, config);
    run.learner().load(base_state(config));
    for (int step = 0; step < steps; ++step) progress(run.step(step));
}

}  // namespace quads
