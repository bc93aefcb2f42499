// Checkpoints: one safetensors file with the FP32 master weights, in training also Adam's moments, and metadata.
#pragma once

#include <string>

#include "src/learner.hpp"

namespace quads {

struct Checkpoint {
    RunConfig config;
    TrainingState state;
};

// Tensors are named as ParameterLayout names them, moments with the prefixes "adam.mean." and "adam.square.". Metadata:
// "step" and "config". Written to a temporary file first, so that the old file survives a kill or a full disk.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// Error for a missing, truncated or foreign file, for tensors that do not fit the model
// configuration stored with them, and for values that are not finite.
Checkpoint load_checkpoint(const std::string& path);

// The same, and Error unless the checkpoint's model is the given one.
Checkpoint load_checkpoint(const std::string& path, const ModelConfig& expected);

}  // namespace quads
