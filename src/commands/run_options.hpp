// The options that commands running the model share.
#pragma once

#include "src/checkpoint.hpp"
#include "src/commands/arguments.hpp"
#include "src/device.hpp"

namespace quads {

// --config, --set, --seed, --device and --threads, followed by the command's own.
std::vector<Option> with_run_options(std::vector<Option> own);

// The configuration: file, then --mode, --seed and --steps where given, then --set in order; also applies --threads.
RunConfig config_of(const Arguments& arguments);

// What eval and gap look at: the configuration with the model and task of --checkpoint (default: its base), the
// weights, and the mode of --mode or all modes.
struct CheckpointView {
    RunConfig config;
    std::vector<float> parameters;
    std::vector<Mode> modes;
};
std::vector<Option> with_checkpoint_options();
CheckpointView checkpoint_of(const Arguments& arguments);

const Operations& device_of(const Arguments& arguments);

// "1:05", "2:03:10"
std::string clock_text(double seconds);

}  // namespace quads
