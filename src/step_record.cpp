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

double seven_digits(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.7g", value);
    return std::strtod(text, nullptr);
}

}  // namespace

Record record_of(const StepRecord& step) {
    Record record;
    for_each_field(step, [&](const char* name, double value) { record.emplace_back(name, seven_digits(value)); });
    if (step.heldout_pass1) record.emplace_back("heldout_pass1", seven_digits(*step.heldout_pass1));
    return record;
}

StepRecord step_of(const Record& record) {
    const auto find = [&](const std::string& name) {
        return std::find_if(record.begin(), record.end(), [&](const auto& entry) { return entry.first == name; });
    };
    StepRecord step;
    for_each_field(step, [&](const char* name, auto& value) {
        const auto entry = find(name);
        check(entry != record.end(), "A log line lacks '", name,
              "'. It was not written by this version of the program.");
        value = static_cast<std::decay_t<decltype(value)>>(entry->second);
    });
    const auto heldout = find("heldout_pass1");
    if (heldout != record.end()) step.heldout_pass1 = heldout->second;
    return step;
}

}  // namespace quads
