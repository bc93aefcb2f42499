#include "src/parameters.hpp"

#include <cmath>

#include "reference/philox.hpp"

namespace quads {
namespace {

// Approximately normal with exact arithmetic only: no log or cosine whose bits depend on a library.
float normal_value(std::uint32_t seed, std::uint32_t tensor, std::uint32_t element) {
    float sum = 0;
    for (std::uint32_t group = 0; group < 3; ++group) {
        const PhiloxWords words = philox4x32_10({{tensor, element, group, 0}}, seed, 2);
        for (std::uint32_t word : words.word) sum += uniform24(word);
    }
    return sum - 6.0f;
}

}  // namespace

ParameterLayout::ParameterLayout(const ModelConfig& c) {
    const auto place = [this](std::string name, int matrices, int rows, int columns) {
        ParameterShape shape{std::move(name), matrices, rows, columns, size};
        size += shape.size();
        return shape;
    };
    const int D = c.width, E = c.experts, F = c.expert_hidden;
    token_table = place("token_table", 1, c.vocabulary, D);
    position_table = place("position_table", 1, c.positions, D);
    for (int l = 0; l < c.layers; ++l) {
        const std::string prefix = "layers." + std::to_string(l) + ".";
        LayerParameters layer;
        layer.attention_norm = place(prefix + "attention_norm", 1, 1, D);
        layer.qkv = place(prefix + "qkv", 1, 3 * D, D);
        layer.attention_out = place(prefix + "attention_out", 1, D, D);
        layer.expert_norm = place(prefix + "expert_norm", 1, 1, D);
        layer.router = place(prefix + "router", 1, E, D);
        layer.gate_up = place(prefix + "gate_up", E, 2 * F, D);
        layer.down = place(prefix + "down", E, D, F);
        layers.push_back(std::move(layer));
    }
    final_norm = place("final_norm", 1, 1, D);
    head = place("head", 1, c.vocabulary, D);
}

std::vector<ParameterShape> ParameterLayout::all() const {
    std::vector<ParameterShape> shapes = {token_table, position_table};
    for (const LayerParameters& l : layers) {
        shapes.insert(shapes.end(),
                      {l.attention_norm, l.qkv, l.attention_out, l.expert_norm, l.router, l.gate_up, l.down});
    }
    shapes.insert(shapes.end(), {final_norm, head});
    return shapes;
}

std::vector<float> initial_parameters(const ModelConfig& config, std::uint32_t seed) {
    const ParameterLayout layout(config);
    std::vector<float> values(layout.size);
    const float depth = std::sqrt(2.0f * static_cast<float>(config.layers));
    const auto ends_with = [](const std::string& name, const std::string& end) {
        return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
    };
    std::uint32_t tensor = 0;
    for (const ParameterShape& shape : layout.all()) {
        const bool writes_residual = ends_with(shape.name, "attention_out") || ends_with(shape.name, "down");
        float deviation = 1.0f / std::sqrt(static_cast<float>(shape.columns));
        if (writes_residual) deviation /= depth;
        if (shape.name == "token_table") deviation = 0.5f;
        if (shape.name == "position_table") deviation = 0.1f;
        const bool norm = ends_with(shape.name, "norm");
        for (std::size_t i = 0; i < shape.size(); ++i) {
            const float z = norm ? 0 : normal_value(seed, tensor, static_cast<std::uint32_t>(i));
            values[shape.offset + i] = norm ? 1.0f : z * deviation;
        }
        ++tensor;
    }
    return values;
}

}  // namespace quads
