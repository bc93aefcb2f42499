#include <cstdio>

#include "src/commands/commands.hpp"
#include "src/commands/run_options.hpp"
#include "src/train.hpp"

namespace quads {

int eval_command(const std::vector<std::string>& raw) {
    const Arguments arguments(
        raw, {"eval",
              "Held-out pass@1 of a checkpoint under the rollout engine of a mode, or of every mode.",
              "",
              with_run_options({
                  {"--checkpoint", "FILE", "safetensors checkpoint (default data/base.safetensors)"},
                  {"--mode", "NAME", "one mode (default: all)"},
              })});
    RunConfig config = config_of(arguments);
    const Operations& operations = device_of(arguments);
    const Checkpoint checkpoint = load_checkpoint(arguments.value("--checkpoint").value_or(config.base));
    config.model = checkpoint.config.model;
    config.task = checkpoint.config.task;
    const ChainTask task(config.task, config.heldout);
    const Buffer<float> master(operations, checkpoint.state.parameters);
    std::printf("mode         held-out pass@1\n");
    for (Mode mode : all_modes()) {
        if (arguments.value("--mode") && mode != config.mode) continue;
        HeldoutEvaluation evaluation(operations, config, rollout_numerics(mode, config.quantization), task);
        std::printf("%-12s %15.4f\n", name_of(mode).c_str(), evaluation.pass1(master.data(), 0));
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace quads
