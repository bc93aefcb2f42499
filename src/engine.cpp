#include "src/engine.hpp"

namespace quads {
namespace {

Numerics base_numerics(const QuantizationConfig& config) {
    Numerics numerics;
    numerics.scope = config.scope;
    numerics.activation_outer_scale = config.activation_outer_scale;
    numerics.residual_ratio = config.residual_ratio;
    numerics.residual_selection = config.residual_selection;
    return numerics;
}

}  // namespace

Numerics trainer_numerics(Mode mode, const QuantizationConfig& config) {
    Numerics numerics = base_numerics(config);
    switch (mode) {
        case Mode::bf16:
        case Mode::fp8:
        case Mode::naive:
        case Mode::weight_only:
        case Mode::residual:
            break;
        case Mode::symmetric:
            numerics.weights = WeightFormat::nvfp4;
            numerics.activations = ActivationFormat::nvfp4;
            break;
        case Mode::asymmetric:
        case Mode::quads:
        case Mode::quads_token:
            numerics.weights = WeightFormat::nvfp4;
            break;
    }
    return numerics;
}

Numerics rollout_numerics(Mode mode, const QuantizationConfig& config) {
    Numerics numerics = base_numerics(config);
    numerics.bf16_residual = config.drift != Drift::none;
    if (config.drift == Drift::fp8_kv_cache) numerics.kv_cache = KvFormat::fp8;
    if (config.drift == Drift::nvfp4_kv_cache) numerics.kv_cache = KvFormat::nvfp4;
    numerics.weights = WeightFormat::nvfp4;
    switch (mode) {
        case Mode::bf16:
            numerics.weights = WeightFormat::bf16;
            break;
        case Mode::fp8:
            numerics.weights = WeightFormat::fp8;
            numerics.activations = ActivationFormat::fp8;
            break;
        case Mode::weight_only:
            break;
        case Mode::naive:
        case Mode::symmetric:
        case Mode::asymmetric:
            numerics.activations = ActivationFormat::nvfp4;
            break;
        case Mode::quads_token:
            numerics.residual_selection = ResidualSelection::token;
            numerics.activations = ActivationFormat::nvfp4_residual;
            break;
        case Mode::residual:
        case Mode::quads:
            numerics.activations = ActivationFormat::nvfp4_residual;
            break;
    }
    return numerics;
}

EngineWeights::EngineWeights(const Operations& operations, const ModelConfig& model, const Numerics& path)
    : numerics(path), config(model), op_(&operations), layout_(model) {
    const bool all = path.scope == Scope::all_linears;
    token_table = make_linear(layout_.token_table, false);
    head = make_linear(layout_.head, false);
    for (const LayerParameters& p : layout_.layers) {
        layers.push_back({nullptr, nullptr, make_linear(p.qkv, all), make_linear(p.attention_out, all),
                          make_linear(p.router, false), make_linear(p.gate_up, true), make_linear(p.down, true)});
    }
}

Linear EngineWeights::make_linear(const ParameterShape& shape, bool in_scope) const {
    Linear linear;
    linear.E = shape.matrices;
    linear.N = shape.rows;
    linear.K = shape.columns;
    linear.quantized = in_scope && numerics.weights != WeightFormat::bf16;
    linear.values = Buffer<float>(*op_, shape.size());
    if (!linear.quantized) return linear;
    const std::size_t rows = static_cast<std::size_t>(linear.E) * linear.N;
    const bool nvfp4 = numerics.weights == WeightFormat::nvfp4;
    linear.outer = Buffer<float>(*op_, linear.E);
    linear.codes = Buffer<std::uint8_t>(*op_, rows * (nvfp4 ? code_bytes_of(linear.K) : linear.K));
    linear.scales = Buffer<std::uint8_t>(*op_, nvfp4 ? rows * blocks_of(linear.K) : 0);
    std::vector<int> offsets;
    for (int e = 0; e <= linear.E; ++e) offsets.push_back(e * linear.N);
    linear.row_offsets = Buffer<int>(*op_, offsets);
    return linear;
}

void EngineWeights::synchronize(Linear& linear, const float* master) const {
    const int rows = linear.E * linear.N;
    const Groups matrices{linear.row_offsets.data(), linear.E};
    if (!linear.quantized) {
        op_->round_bf16(master, rows * linear.K, linear.values.data());
    } else if (numerics.weights == WeightFormat::nvfp4) {
        op_->quantize_nvfp4(master, matrices, rows, linear.K, linear.nvfp4());
        op_->dequantize_nvfp4(linear.nvfp4(), matrices, rows, linear.K, false, linear.values.data());
    } else {
        op_->quantize_fp8(master, matrices, rows, linear.K, linear.fp8());
        op_->dequantize_fp8(linear.fp8(), matrices, rows, linear.K, false, linear.values.data());
    }
}

void EngineWeights::synchronize(const float* master) {
    position_table = master + layout_.position_table.offset;
    final_norm = master + layout_.final_norm.offset;
    synchronize(token_table, master + layout_.token_table.offset);
    synchronize(head, master + layout_.head.offset);
    for (std::size_t l = 0; l < layers.size(); ++l) {
        const LayerParameters& p = layout_.layers[l];
        Layer& layer = layers[l];
        layer.attention_norm = master + p.attention_norm.offset;
        layer.expert_norm = master + p.expert_norm.offset;
        synchronize(layer.qkv, master + p.qkv.offset);
        synchronize(layer.attention_out, master + p.attention_out.offset);
        synchronize(layer.router, master + p.router.offset);
        synchronize(layer.gate_up, master + p.gate_up.offset);
        synchronize(layer.down, master + p.down.offset);
    }
}

}  // namespace quads
