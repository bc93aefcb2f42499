// What a run comes down to, and the files that tell it: summary.json and report.html of a folder of runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/report.hpp"
#include "src/train.hpp"

namespace quads {

struct RunSummary {
    double start_reward = 0;     // mean over the first 15 steps
    double final_reward = 0;     // mean over the last 15 steps
    double heldout_pass1 = 0;    // of the last evaluation
    double gap_max_first50 = 0;  // largest |gap| of a token in the first 50 steps
    double gap_max_last50 = 0;   // and in the last 50
    double gap_mean_start = 0;   // mean |gap| over the first 15 steps
    bool collapsed = false;      // final_reward below start_reward
};

// Shorter runs use the steps there are.
RunSummary summarize(const std::vector<StepRecord>& steps);

// Runs by mode and seed, modes in the order of all_modes().
using RunTable = std::map<Mode, std::map<std::uint32_t, std::vector<StepRecord>>>;

// {"naive": {"0": {"start_reward": ...}, ...}, ...}
std::string summary_json(const RunTable& runs);

// One row a mode: means over seeds, the final reward with its 95 % interval and range, the largest gap of any seed.
Table summary_table(const RunTable& runs);

// The gap's terms at five measured steps of every mode: the first, the last and those at or before each quarter; means
// over seeds. No rows where no run has measured any (evaluation.decomposition_every).
Table decomposition_table(const RunTable& runs);

}  // namespace quads
