// An engine is the model under one numeric path. Trainer and rollout are two engines over the same master weights.
#pragma once

#include <vector>

#include "src/operations.hpp"
#include "src/parameters.hpp"

namespace quads {

enum class WeightFormat { bf16, fp8, nvfp4 };
enum class ActivationFormat { bf16, fp8, nvfp4, nvfp4_residual };

// The numeric path of one engine. Formats apply to the linear layers in scope; everything else is BF16.
struct Numerics {
    WeightFormat weights = WeightFormat::bf16;
    ActivationFormat activations = ActivationFormat::bf16;
    Scope scope = Scope::experts;
    OuterScale activation_outer_scale = OuterScale::row;
    float residual_ratio = 0.5f;
    ResidualSelection residual_selection = ResidualSelection::batch;
    bool bf16_residual = false;  // residual stream rounded to BF16 after every addition
    KvFormat kv_cache = KvFormat::bf16;
};

// The two columns of the table of modes.
Numerics trainer_numerics(Mode mode, const QuantizationConfig& config);
Numerics rollout_numerics(Mode mode, const QuantizationConfig& config);

// One weight in the form an engine multiplies with: E stacked (N, K) matrices.
struct Linear {
    int E, N, K;
    bool quantized;               // in scope of a quantised weight format
    Buffer<float> values;         // (E, N, K) BF16-valued: bf16(w), or the quantised weight without its outer scale
    Buffer<float> outer;          // (E) outer scales; used where quantized
    Buffer<std::uint8_t> codes;   // NVFP4 or FP8 codes
    Buffer<std::uint8_t> scales;  // NVFP4 block scales
    Buffer<int> row_offsets;      // (E + 1) {0, N, 2N, ...}: the groups of the E * N weight rows

    const float* outer_or_null() const { return quantized ? outer.data() : nullptr; }
    Nvfp4 nvfp4() const { return {codes.data(), scales.data(), outer.data(), OuterScale::group}; }
    Fp8 fp8() const { return {codes.data(), outer.data(), OuterScale::group}; }
};

// The weights of an engine, made from the FP32 master weights. QAT and weight sync are this one function, so a trainer
// and a rollout with the same weight format hold the same bits.
class EngineWeights {
public:
    struct Layer {
        const float* attention_norm;
        const float* expert_norm;
        Linear qkv, attention_out, router, gate_up, down;
    };

    EngineWeights(const Operations& operations, const ModelConfig& config, const Numerics& numerics);

    // Quantises or rounds the master weights. `master` must stay alive: norms and positions are used from it in FP32.
    void synchronize(const float* master);

    Numerics numerics;
    ModelConfig config;
    Linear token_table, head;
    const float* position_table = nullptr;
    const float* final_norm = nullptr;
    std::vector<Layer> layers;

private:
    Linear make_linear(const ParameterShape& shape, bool in_scope) const;
    void synchronize(Linear& linear, const float* master) const;

    const Operations* op_;
    ParameterLayout layout_;
};

}  // namespace quads
