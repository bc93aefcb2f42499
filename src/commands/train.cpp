#include "src/train.hpp"

#include <chrono>
#include <cstdio>

#include "src/commands/commands.hpp"
#include "src/commands/run_options.hpp"

namespace quads {

int train_command(const std::vector<std::string>& raw) {
    const Arguments arguments(
        raw,
        {"train",
         "One GRPO run. Writes a JSONL log (the configuration, then a line per step) and a checkpoint.\n"
         "A run killed at any moment continues with --resume to the bits of an unbroken run.",
         "",
         with_run_options({
             {"--mode", "NAME", "bf16, fp8, naive, weight_only, symmetric, asymmetric, residual, quads, quads_token"},
             {"--steps", "N", "optimiser steps (default 420)"},
             {"--log", "FILE", "JSONL log to write"},
             {"--checkpoint", "FILE", "safetensors checkpoint to write"},
             {"--resume", "", "continue the run of --log and --checkpoint"},
         })});
    const RunConfig config = config_of(arguments);
    const RunFiles files{arguments.required("--log"), arguments.required("--checkpoint"), arguments.flag("--resume")};
    const Operations& operations = device_of(arguments);

    std::printf("%s\ndevice %s, log %s, checkpoint %s\n", to_json(config).c_str(), operations.device, files.log.c_str(),
                files.checkpoint.c_str());
    std::printf(" step  reward  held-out  mean gap   max gap  clipped  entropy  grad norm   s/step    ETA\n");
    const auto start = std::chrono::steady_clock::now();
    int done = 0;
    const std::vector<StepRecord> records = train(operations, config, files, [&](const StepRecord& r) {
        ++done;
        const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        char heldout[16] = "";
        if (r.heldout_pass1) std::snprintf(heldout, sizeof heldout, "%.3f", *r.heldout_pass1);
        std::printf("%5d  %6.3f  %8s  %8.4f  %8.3f  %7.3f  %7.3f  %9.3f  %7.2f  %5s\n", r.step, r.reward, heldout,
                    r.mismatch.gap_mean, r.mismatch.gap_max, r.mismatch.clip_fraction, r.mismatch.entropy, r.grad_norm,
                    r.seconds, clock_text(elapsed / done * (config.steps - 1 - r.step)).c_str());
        std::fflush(stdout);
    });
    std::printf("%zu steps in %s and %s. Next: quads gap --checkpoint %s\n", records.size(), files.log.c_str(),
                files.checkpoint.c_str(), files.checkpoint.c_str());
    return 0;
}

}  // namespace quads
