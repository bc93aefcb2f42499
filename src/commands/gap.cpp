#include "src/gap.hpp"

#include <cstdio>

#include "src/commands/commands.hpp"
#include "src/commands/run_options.hpp"

namespace quads {

int gap_command(const std::vector<std::string>& raw) {
    const Arguments arguments(
        raw,
        {"gap",
         "The gap |log p_trainer - log p_rollout| of a checkpoint under every mode, on tokens sampled by the mode's\n"
         "rollout engine, and where it comes from. One factor is swapped at a time, in this order:\n"
         "  num     both engines with the trainer's weights and activations: trainer engine -> rollout engine\n"
         "  weight  in the rollout engine: trainer's weights -> rollout's weights (exactly 0 under QAT)\n"
         "  act     in the rollout engine: trainer's activations -> rollout's activations\n"
         "Flips: shares of router choices, and of FP4 activation codes, that differ between the engines.",
         "", with_checkpoint_options()});
    const auto [config, parameters, modes] = checkpoint_of(arguments);
    const Operations& operations = device_of(arguments);
    std::printf("                  gap            delta_num        delta_weight        delta_act           flips\n");
    std::printf("mode          mean     max     mean     max     mean     max     mean     max   router   codes\n");
    for (Mode mode : modes) {
        RunConfig one = config;
        one.mode = mode;
        const GapReport r = measure_gap(operations, one, parameters);
        std::printf("%-12s %7.4f %7.3f  %7.4f %7.3f  %7.4f %7.3f  %7.4f %7.3f  %7.4f %7.4f\n", name_of(mode).c_str(),
                    r.total.mean, r.total.max, r.num.mean, r.num.max, r.weight.mean, r.weight.max, r.act.mean,
                    r.act.max, r.router_flip_fraction, r.code_flip_fraction);
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace quads
