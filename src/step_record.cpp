#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "src/train.hpp"

namespace quads {
namespace {

// Calls field(name, value) for every number of a record but heldout_pass1, in the order of the log's columns.
template <typename Step, typename Field>
void for_each_field(Step& step, const Field& field) {
    field("step", step.step);
    field("reward", step.reward);
    field("gap_mean", step.mismatch.gap_mean);
    field("gap_max", step.mismatch.gap_max);
    field("gap_over_ln2", step.mismatch.gap_over_ln2);
    field("kl_k1", step.mismatch.kl_k1);
    field("kl_k3", step.mismatch.kl_k3);
    field("ratio_max", step.mismatch.ratio_max);
    field("clip_fraction", step.mismatch.clip_fraction);
    field("ess", step.mismatch.ess);
    field("entropy", step.mismatch.entropy);
    field("grad_norm", step.grad_norm);
    field("zero_spread_groups", step.zero_spread_groups);
    field("router_flip_fraction", step.router_flip_fraction);
    field("code_flip_fraction", step.code_flip_fraction);
    field("tokens", step.tokens);
    field("seconds", step.seconds);
}

template <typename Share, typename Field>
void for_each_silenced_field(Share& share, const Field& field) {
    field("silenced_tokens", share.tokens);
    field("silenced_weight", share.weight);
}

// The same for the numbers of a decomposition that do not depend on the number of layers.
template <typename Report, typename Field>
void for_each_gap_field(Report& gap, const Field& field) {
    field("delta_total_mean", gap.total.mean);
    field("delta_total_max", gap.total.max);
    field("delta_num_mean", gap.num.mean);
    field("delta_num_max", gap.num.max);
    field("delta_weight_mean", gap.weight.mean);
    field("delta_weight_max", gap.weight.max);
    field("delta_act_mean", gap.act.mean);
    field("delta_act_max", gap.act.max);
    field("unlikely_tokens", gap.unlikely_tokens);
    field("unlikely_gap", gap.unlikely_gap);
    field("router_flips", gap.router_flips.fraction);
    field("code_flips", gap.code_flips.fraction);
}

double seven_digits(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.7g", value);
    return std::strtod(text, nullptr);
}

}  // namespace

Record record_of(const StepRecord& step) {
    Record record;
    const auto append = [&](const std::string& name, double value) { record.emplace_back(name, seven_digits(value)); };
    for_each_field(step, append);
    if (step.heldout_pass1) append("heldout_pass1", *step.heldout_pass1);
    if (step.silenced) for_each_silenced_field(*step.silenced, append);
    if (!step.gap) return record;
    for_each_gap_field(*step.gap, append);
    for (std::size_t l = 0; l < step.gap->router_flips.by_layer.size(); ++l) {
        append("router_flips_" + std::to_string(l), step.gap->router_flips.by_layer[l]);
        append("code_flips_" + std::to_string(l), step.gap->code_flips.by_layer[l]);
    }
    return record;
}

StepRecord step_of(const Record& record) {
    const auto find = [&](const std::string& name) {
        return std::find_if(record.begin(), record.end(), [&](const auto& entry) { return entry.first == name; });
    };
    StepRecord step;
    const auto take = [&](const std::string& name, auto& value) {
        const auto entry = find(name);
        check(entry != record.end(), "A log line lacks '", name,
              "'. It was not written by this version of the program.");
        value = static_cast<std::decay_t<decltype(value)>>(entry->second);
    };
    for_each_field(step, take);
    const auto heldout = find("heldout_pass1");
    if (heldout != record.end()) step.heldout_pass1 = heldout->second;
    if (find("silenced_tokens") != record.end()) for_each_silenced_field(step.silenced.emplace(), take);
    if (find("delta_total_mean") == record.end()) return step;
    GapReport& gap = step.gap.emplace();
    for_each_gap_field(gap, take);
    for (int l = 0; find("router_flips_" + std::to_string(l)) != record.end(); ++l) {
        take("router_flips_" + std::to_string(l), gap.router_flips.by_layer.emplace_back());
        take("code_flips_" + std::to_string(l), gap.code_flips.by_layer.emplace_back());
    }
    return step;
}

}  // namespace quads
