#include "src/gap.hpp"

#include <cstdio>

#include "src/commands/commands.hpp"
#include "src/commands/run_options.hpp"

namespace quads {
namespace {

void print_layers(const std::string& mode, const char* what, const std::vector<double>& shares) {
    std::printf("\n%-12s %-6s", mode.c_str(), what);
    for (double share : shares) std::printf(" %7.4f", share);
}

}  // namespace

int gap_command(const std::vector<std::string>& raw) {
    const Arguments arguments(
        raw,
        {"gap",
         "The gap |log p_trainer - log p_rollout| of a checkpoint under every mode, on tokens sampled by the mode's\n"
         "rollout engine, and where it comes from. One factor is swapped at a time, in this order:\n"
         "  num     both engines with the trainer's weights and activations: trainer engine -> rollout engine\n"
         "  weight  in the rollout engine: trainer's weights -> rollout's weights (exactly 0 under QAT)\n"
         "  act     in the rollout engine: trainer's activations -> rollout's activations\n"
         "Flips: shares of router choices, and of FP4 activation codes, that differ between the engines; a second table\n"
         "has them by layer. Unlikely: share of the tokens to which the trainer gives less than 0.1, and their share of\n"
         "the summed gap.",
         "", with_checkpoint_options()});
    const auto [config, parameters, modes] = checkpoint_of(arguments);
    const Operations& operations = device_of(arguments);
    std::printf("                  gap            delta_num        delta_weight        delta_act           flips         unlikely\n");
    std::printf("mode          mean     max     mean     max     mean     max     mean     max   router   codes   tokens     gap\n");
    std::vector<std::pair<Mode, GapReport>> reports;
    for (Mode mode : modes) {
        RunConfig one = config;
        one.mode = mode;
        GapReport r = measure_gap(operations, one, parameters);
        std::printf("%-12s %7.4f %7.3f  %7.4f %7.3f  %7.4f %7.3f  %7.4f %7.3f  %7.4f %7.4f  %7.4f %7.4f\n",
                    name_of(mode).c_str(), r.total.mean, r.total.max, r.num.mean, r.num.max, r.weight.mean,
                    r.weight.max, r.act.mean, r.act.max, r.router_flips.fraction, r.code_flips.fraction,
                    r.unlikely_tokens, r.unlikely_gap);
        std::fflush(stdout);
        reports.emplace_back(mode, std::move(r));
    }
    std::printf("\nflips by layer     ");
    for (int l = 0; l < config.model.layers; ++l) std::printf(" %7d", l);
    for (const auto& [mode, r] : reports) {
        print_layers(name_of(mode), "router", r.router_flips.by_layer);
        print_layers("", "codes", r.code_flips.by_layer);
    }
    std::printf("\n");
    return 0;
}

}  // namespace quads
