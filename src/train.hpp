// A GRPO run: the loop, its log and its checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/checkpoint.hpp"
#include "src/gap.hpp"
#include "src/grpo.hpp"
#include "src/json_lines.hpp"
#include "src/learner.hpp"

namespace quads {

// One line of the log. Every field but `seconds` is the same for one configuration on every machine and device.
struct StepRecord {
    int step = 0;
    double reward = 0;                // mean over the step's responses
    MismatchStatistics mismatch;      // between trainer and rollout, before the update
    double grad_norm = 0;             // before clipping
    double zero_spread_groups = 0;    // share of groups whose rewards are all equal
    double router_flip_fraction = 0;  // share of expert choices in which the engines differ
    double code_flip_fraction = 0;    // share of FP4 activation codes that the difference of the engines' inputs flips
    int tokens = 0;                   // response tokens that count
    std::optional<double> heldout_pass1;    // after the step's update, by the rollout engine
    std::optional<SilencedShare> silenced;  // where config.grpo.silenced names a class
    std::optional<GapReport> gap;           // on other chains, before the step's update
    double seconds = 0;
};

// The line of a log, numbers to 7 significant digits; and back. Error for a line that lacks a column.
Record record_of(const StepRecord& step);
StepRecord step_of(const Record& record);

// Mean reward of held-out problems, each answered config.evaluation.responses times by the given engine at temperature
// 1. `stream` tells evaluations of one run apart.
class HeldoutEvaluation {
public:
    HeldoutEvaluation(const Operations& operations, const RunConfig& config, const Numerics& numerics,
                      const Task& task);
    double pass1(const float* master, std::uint32_t stream);

private:
    const RunConfig& config_;
    const Task& task_;
    int prompts_;
    RolloutEngine engine_;
};

struct RunFiles {
    std::string log;         // JSONL: the configuration, then a line per step
    std::string checkpoint;  // safetensors, replaced every config.checkpoint_every steps and at the end
    bool resume = false;     // continue from the checkpoint to the bits of an unbroken run
};

// Runs or resumes; `progress` is called after each step that was done here. Returns the records of the whole run.
// Errors: existing files without resume, files of another configuration, a base that does not fit, an unwritable path.
std::vector<StepRecord> train(const Operations& operations, const RunConfig& config, const RunFiles& files,
                              const std::function<void(const StepRecord&)>& progress);

// The first `steps` steps of a run without any file: what `quads bench` measures and tests compare.
void train_without_files(const Operations& operations, const RunConfig& config, int steps,
                         const std::function<void(const StepRecord&)>& progress);

}  // namespace quads
