#include "src/commands/run_options.hpp"

#include <cstdio>

#include "reference/parallel.hpp"

namespace quads {

std::vector<Option> with_run_options(std::vector<Option> own) {
    const std::vector<Option> shared = {
        {"--config", "FILE", "JSON configuration, see data/configs/ (default: the regime of the committed results)"},
        {"--set", "KEY=VALUE", "changes one key of the configuration, e.g. grpo.clip_high=0.3", kRepeated},
        {"--seed", "N", "seed of every random number (default 0)"},
        {"--device", "NAME", "auto, cpu, cuda, or reference: the plain loops of the specification (default auto)"},
        {"--threads", "N", "CPU threads (default: one per core); results do not depend on it"},
    };
    own.insert(own.end(), shared.begin(), shared.end());
    return own;
}

RunConfig config_of(const Arguments& arguments) {
    if (const auto threads = arguments.integer("--threads", 1, 1024)) set_threads(static_cast<int>(*threads));
    std::vector<std::string> assignments;
    for (const char* key : {"mode", "seed", "steps"}) {
        const std::string option = std::string("--") + key;
        if (!arguments.declares(option)) continue;
        if (const auto value = arguments.value(option)) assignments.push_back(std::string(key) + "=" + *value);
    }
    for (const std::string& assignment : arguments.values("--set")) assignments.push_back(assignment);
    return load_config(arguments.value("--config").value_or(""), assignments);
}

std::vector<Option> with_checkpoint_options() {
    return with_run_options({
        {"--checkpoint", "FILE", "safetensors checkpoint (default data/base.safetensors)"},
        {"--mode", "NAME", "one mode (default: all)"},
    });
}

CheckpointView checkpoint_of(const Arguments& arguments) {
    CheckpointView view{config_of(arguments), {}, all_modes()};
    Checkpoint checkpoint = load_checkpoint(arguments.value("--checkpoint").value_or(view.config.base));
    view.config.model = checkpoint.config.model;
    view.config.task = checkpoint.config.task;
    view.parameters = std::move(checkpoint.state.parameters);
    if (arguments.value("--mode")) view.modes = {view.config.mode};
    return view;
}

const Operations& device_of(const Arguments& arguments) {
    return operations_for(arguments.value("--device").value_or("auto"));
}

std::string clock_text(double seconds) {
    const long total = static_cast<long>(seconds + 0.5);
    char text[32];
    if (total >= 3600) {
        std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", total / 3600, total / 60 % 60, total % 60);
    } else {
        std::snprintf(text, sizeof text, "%ld:%02ld", total / 60, total % 60);
    }
    return text;
}

}  // namespace quads
