#include "src/summary.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/json_text.hpp"

namespace quads {
namespace {

constexpr std::size_t kEnds = 15;   // steps averaged at either end of a run
constexpr std::size_t kPhase = 50;  // steps searched for the largest gap

template <typename Value>
double mean_of(std::vector<StepRecord>::const_iterator begin, std::vector<StepRecord>::const_iterator end,
               Value value) {
    double sum = 0;
    for (auto step = begin; step != end; ++step) sum += value(*step);
    return sum / static_cast<double>(end - begin);
}

double largest_gap(std::vector<StepRecord>::const_iterator begin, std::vector<StepRecord>::const_iterator end) {
    double largest = 0;
    for (auto step = begin; step != end; ++step) largest = std::max(largest, step->mismatch.gap_max);
    return largest;
}

std::string digits(double value, int after_point) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", after_point, value);
    return text;
}

// " ± 0.012": half the 95 % interval of the mean by Student's t; nothing for a single value.
std::string half_interval(const std::vector<double>& values) {
    constexpr double kStudent[] = {0, 0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};  // by count
    const std::size_t n = values.size();
    if (n < 2) return "";
    double mean = 0, squares = 0;
    for (double value : values) mean += value / static_cast<double>(n);
    for (double value : values) squares += (value - mean) * (value - mean);
    const double error = std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n));
    return " ± " + digits((n <= 10 ? kStudent[n] : 2.0) * error, 3);
}

std::string range(const std::vector<double>& values) {
    const auto [lowest, highest] = std::minmax_element(values.begin(), values.end());
    return digits(*lowest, 3) + "-" + digits(*highest, 3);
}

// The measured steps to show, ascending.
std::vector<int> shown_steps(const std::vector<StepRecord>& steps) {
    std::vector<int> shown;
    for (int quarter = 0; quarter <= 4; ++quarter) {
        int latest = -1;
        for (const StepRecord& step : steps) {
            if (step.gap && 4 * step.step <= quarter * static_cast<int>(steps.size())) latest = step.step;
        }
        if (latest >= 0 && (shown.empty() || latest > shown.back())) shown.push_back(latest);
    }
    return shown;
}

// Means over seeds of what a decomposition holds.
struct MeanGap {
    explicit MeanGap(std::vector<const GapReport*> reports) : reports(std::move(reports)) {}

    template <typename Value>
    std::string mean(int after_point, Value value) const {
        double sum = 0;
        for (const GapReport* report : reports) sum += value(*report);
        return digits(sum / static_cast<double>(reports.size()), after_point);
    }
    std::string layers(Flips GapReport::*flips) const {
        return mean(3, [=](const GapReport& r) { return (r.*flips).by_layer.front(); }) + "-" +
               mean(3, [=](const GapReport& r) { return (r.*flips).by_layer.back(); });
    }

    std::vector<const GapReport*> reports;
};

}  // namespace

RunSummary summarize(const std::vector<StepRecord>& steps) {
    RunSummary s;
    if (steps.empty()) return s;
    const auto ends = static_cast<std::ptrdiff_t>(std::min(kEnds, steps.size()));
    const auto phase = static_cast<std::ptrdiff_t>(std::min(kPhase, steps.size()));
    const auto reward = [](const StepRecord& step) { return step.reward; };
    s.start_reward = mean_of(steps.begin(), steps.begin() + ends, reward);
    s.final_reward = mean_of(steps.end() - ends, steps.end(), reward);
    s.gap_mean_start =
        mean_of(steps.begin(), steps.begin() + ends, [](const auto& step) { return step.mismatch.gap_mean; });
    s.gap_max_first50 = largest_gap(steps.begin(), steps.begin() + phase);
    s.gap_max_last50 = largest_gap(steps.end() - phase, steps.end());
    for (const StepRecord& step : steps) s.heldout_pass1 = step.heldout_pass1.value_or(s.heldout_pass1);
    s.collapsed = s.final_reward < s.start_reward;
    return s;
}

std::string summary_json(const RunTable& runs) {
    std::string text = "{";
    const char* mode_separator = "\n";
    for (const auto& [mode, seeds] : runs) {
        text += mode_separator + json_string(name_of(mode)) + ": {";
        mode_separator = ",\n";
        const char* separator = "\n";
        for (const auto& [seed, steps] : seeds) {
            const RunSummary s = summarize(steps);
            text += separator + std::string("  ") + json_string(std::to_string(seed)) + ": {";
            separator = ",\n";
            text += "\"start_reward\": " + json_number(s.start_reward) +
                    ", \"final_reward\": " + json_number(s.final_reward);
            text += ", \"heldout_pass1\": " + json_number(s.heldout_pass1);
            text += ", \"gap_max_first50\": " + json_number(s.gap_max_first50);
            text += ", \"gap_max_last50\": " + json_number(s.gap_max_last50);
            text += ", \"gap_mean_start\": " + json_number(s.gap_mean_start);
            text += ", \"collapsed\": " + std::string(s.collapsed ? "true" : "false") + "}";
        }
        text += "\n}";
    }
    return text + "\n}\n";
}

Table summary_table(const RunTable& runs) {
    Table table{{"mode", "seeds", "start reward", "final reward", "lowest-highest", "held-out pass@1",
                 "mean gap, start", "max gap, first 50", "max gap, last 50", "collapsed"},
                {}};
    for (const auto& [mode, seeds] : runs) {
        RunSummary mean;
        std::vector<double> finals;
        int collapsed = 0;
        for (const auto& [seed, steps] : seeds) {
            const RunSummary s = summarize(steps);
            const double share = 1.0 / static_cast<double>(seeds.size());
            mean.start_reward += share * s.start_reward;
            mean.final_reward += share * s.final_reward;
            mean.heldout_pass1 += share * s.heldout_pass1;
            mean.gap_mean_start += share * s.gap_mean_start;
            mean.gap_max_first50 = std::max(mean.gap_max_first50, s.gap_max_first50);
            mean.gap_max_last50 = std::max(mean.gap_max_last50, s.gap_max_last50);
            finals.push_back(s.final_reward);
            collapsed += s.collapsed;
        }
        table.rows.push_back({name_of(mode), std::to_string(seeds.size()), digits(mean.start_reward, 3),
                              digits(mean.final_reward, 3) + half_interval(finals), range(finals),
                              digits(mean.heldout_pass1, 3), digits(mean.gap_mean_start, 4),
                              digits(mean.gap_max_first50, 2), digits(mean.gap_max_last50, 2),
                              std::to_string(collapsed) + " of " + std::to_string(seeds.size())});
    }
    return table;
}

Table decomposition_table(const RunTable& runs) {
    Table table{{"mode", "step", "mean gap", "num", "weight", "act", "max gap", "router flips, first-last layer",
                 "code flips, first-last layer", "tokens with p < 0.1", "their share of the gap"},
                {}};
    for (const auto& [mode, seeds] : runs) {
        for (int step : shown_steps(seeds.begin()->second)) {
            std::vector<const GapReport*> reports;
            for (const auto& [seed, steps] : seeds) {
                if (step < static_cast<int>(steps.size()) && steps[step].gap) reports.push_back(&*steps[step].gap);
            }
            const MeanGap gap(reports);
            table.rows.push_back({name_of(mode), std::to_string(step),
                                  gap.mean(4, [](const GapReport& r) { return r.total.mean; }),
                                  gap.mean(4, [](const GapReport& r) { return r.num.mean; }),
                                  gap.mean(4, [](const GapReport& r) { return r.weight.mean; }),
                                  gap.mean(4, [](const GapReport& r) { return r.act.mean; }),
                                  gap.mean(2, [](const GapReport& r) { return r.total.max; }),
                                  gap.layers(&GapReport::router_flips), gap.layers(&GapReport::code_flips),
                                  gap.mean(3, [](const GapReport& r) { return r.unlikely_tokens; }),
                                  gap.mean(3, [](const GapReport& r) { return r.unlikely_gap; })});
        }
    }
    return table;
}

}  // namespace quads
