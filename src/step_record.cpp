#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/json_text.hpp"
#include "src/train.hpp"

namespace quads {
namespace {

// Calls field(name, value) for every number of a record but heldout_pass1, in the order of the log's columns.
template <typename Record, typename Field>
void for_each_field(Record& r, const Field& field) {
    field("step", r.step);
    field("reward", r.reward);
    field("gap_mean", r.mismatch.gap_mean);
    field("gap_max", r.mismatch.gap_max);
    field("gap_over_ln2", r.mismatch.gap_over_ln2);
    field("kl_k1", r.mismatch.kl_k1);
    field("kl_k3", r.mismatch.kl_k3);
    field("ratio_max", r.mismatch.ratio_max);
    field("clip_fraction", r.mismatch.clip_fraction);
    field("ess", r.mismatch.ess);
    field("entropy", r.mismatch.entropy);
    field("grad_norm", r.grad_norm);
    field("zero_spread_groups", r.zero_spread_groups);
    field("router_flip_fraction", r.router_flip_fraction);
    field("code_flip_fraction", r.code_flip_fraction);
    field("tokens", r.tokens);
    field("seconds", r.seconds);
}

double seven_digits(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.7g", value);
    return std::strtod(text, nullptr);
}

}  // namespace

std::string to_json(const StepRecord& record) {
    std::string line;
    for_each_field(record, [&](const char* name, auto value) {
        line += line.empty() ? "{" : ", ";
        line += json_string(name) + ": " + json_number(seven_digits(static_cast<double>(value)));
    });
    if (record.heldout_pass1) line += ", \"heldout_pass1\": " + json_number(seven_digits(*record.heldout_pass1));
    return line + "}";
}

StepRecord step_from_json(const std::string& line) {
    StepRecord record;
    try {
        const nlohmann::json json = nlohmann::json::parse(line);
        for_each_field(record, [&](const char* name, auto& value) {
            // Numbers that JSON cannot hold were written as null.
            if (!json.at(name).is_null()) json.at(name).get_to(value);
        });
        if (json.contains("heldout_pass1")) record.heldout_pass1 = json.at("heldout_pass1").get<double>();
    } catch (const nlohmann::json::exception& error) {
        fail("A log line is not a training step: ", error.what());
    }
    return record;
}

}  // namespace quads
