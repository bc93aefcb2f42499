#include <cstdio>

#include "src/commands/commands.hpp"
#include "src/commands/run_options.hpp"
#include "src/train.hpp"

namespace quads {

int eval_command(const std::vector<std::string>& raw) {
    const Arguments arguments(
        raw, {"eval", "Held-out pass@1 of a checkpoint under the rollout engine of a mode, or of every mode.", "",
              with_checkpoint_options()});
    const auto [config, parameters, modes] = checkpoint_of(arguments);
    const Operations& operations = device_of(arguments);
    const Task task(config.task, config.heldout);
    const Buffer<float> master(operations, parameters);
    std::printf("mode         held-out pass@1\n");
    for (Mode mode : modes) {
        HeldoutEvaluation evaluation(operations, config, rollout_numerics(mode, config.quantization), task);
        std::printf("%-12s %15.4f\n", name_of(mode).c_str(), evaluation.pass1(master.data(), 0));
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace quads
