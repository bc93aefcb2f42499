#include "src/checkpoint.hpp"

#include <cmath>
#include <cstdlib>

#include "src/safetensors.hpp"

namespace quads {
namespace {

const char kMean[] = "adam.mean.", kSquare[] = "adam.square.";

std::vector<std::int64_t> shape_of(const ParameterShape& p) {
    if (p.matrices > 1) return {p.matrices, p.rows, p.columns};
    if (p.rows > 1) return {p.rows, p.columns};
    return {p.columns};
}

}  // namespace

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
    Safetensors file;
    file.metadata["format"] = "quads checkpoint 1";
    file.metadata["step"] = std::to_string(checkpoint.state.step);
    file.metadata["config"] = to_json(checkpoint.config);
    for (const ParameterShape& p : ParameterLayout(checkpoint.config.model).all()) {
        const auto put = [&](const std::string& prefix, const std::vector<float>& flat) {
            const auto first = flat.begin() + static_cast<std::ptrdiff_t>(p.offset);
            const std::vector<float> values(first, first + static_cast<std::ptrdiff_t>(p.size()));
            file.tensors[prefix + p.name] = Tensor::of(values, shape_of(p));
        };
        put("", checkpoint.state.parameters);
        if (checkpoint.state.adam_mean.empty()) continue;
        put(kMean, checkpoint.state.adam_mean);
        put(kSquare, checkpoint.state.adam_square);
    }
    write_safetensors(path, file);
}

Checkpoint load_checkpoint(const std::string& path) {
    const Safetensors file = read_safetensors(path);
    check(file.metadata.count("format") && file.metadata.at("format") == "quads checkpoint 1", "'", path,
          "' is a safetensors file, but not a checkpoint of this program. Make one with `quads pretrain` or `quads "
          "train`.");
    Checkpoint checkpoint;
    checkpoint.config = config_from_json(file.text("config"));
    checkpoint.state.step = std::atoi(file.text("step").c_str());
    const ParameterLayout layout(checkpoint.config.model);
    const bool moments = file.tensors.count(kMean + layout.head.name) > 0;
    for (const ParameterShape& p : layout.all()) {
        const auto append = [&](std::vector<float>& flat, const std::string& prefix) {
            const std::vector<float> values = file.values<float>(prefix + p.name, shape_of(p));
            for (std::size_t i = 0; i < values.size(); ++i) {
                check(std::isfinite(values[i]), "The tensor '", prefix, p.name, "' of '", path, "' holds ", values[i],
                      " at element ", i, ", expected finite numbers. Use a checkpoint from before the run diverged.");
            }
            flat.insert(flat.end(), values.begin(), values.end());
        };
        append(checkpoint.state.parameters, "");
        if (!moments) continue;
        append(checkpoint.state.adam_mean, kMean);
        append(checkpoint.state.adam_square, kSquare);
    }
    return checkpoint;
}

Checkpoint load_checkpoint(const std::string& path, const ModelConfig& expected) {
    Checkpoint checkpoint = load_checkpoint(path);
    RunConfig theirs, ours;
    theirs.model = checkpoint.config.model;
    ours.model = expected;
    check(to_json(theirs) == to_json(ours), "The checkpoint '", path, "' was made with another model (",
          checkpoint.config.model.layers, " layers, width ", checkpoint.config.model.width, ", ",
          checkpoint.config.model.experts, " experts, ...) than the configuration asks for (", expected.layers,
          " layers, width ", expected.width, ", ", expected.experts, " experts, ...). Set `base` or `model` to fit.");
    return checkpoint;
}

}  // namespace quads
