#include "src/pretrain.hpp"

#include <chrono>
#include <cstdio>

#include "src/checkpoint.hpp"
#include "src/commands/commands.hpp"
#include "src/commands/run_options.hpp"

namespace quads {

int pretrain_command(const std::vector<std::string>& raw) {
    const Arguments arguments(
        raw, {"pretrain",
              "Makes a base checkpoint: supervised training on random problems, stopped while the model still errs\n"
              "(pretrain.target). Without options it regenerates data/base.safetensors bit for bit.",
              "", with_run_options({{"--out", "FILE", "safetensors checkpoint to write"}})});
    const std::string out = arguments.required("--out");
    const RunConfig config = config_of(arguments);
    const Operations& operations = device_of(arguments);
    std::printf("%s\ndevice %s, checkpoint %s\n", to_json(config).c_str(), operations.device, out.c_str());
    std::printf(" step    loss  success  grad norm   time\n");
    const auto start = std::chrono::steady_clock::now();
    const TrainingState state = pretrain(operations, config, [&](const PretrainRecord& r) {
        const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::printf("%5d  %6.4f  %7.4f  %9.3f  %5s\n", r.step, r.loss, r.success,
                    static_cast<double>(r.grad_norm), clock_text(elapsed).c_str());
        std::fflush(stdout);
    });
    save_checkpoint(out, {config, state});
    std::printf("Wrote %s. Next: quads train --log run.jsonl --checkpoint run.safetensors\n", out.c_str());
    return 0;
}

}  // namespace quads
