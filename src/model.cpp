#include "src/model.hpp"

#include <algorithm>

namespace quads {

KvCache::KvCache(const Operations& operations, const ModelConfig& config, int rows) {
    for (int l = 0; l < config.layers; ++l) {
        k.emplace_back(operations, static_cast<std::size_t>(rows) * config.width);
        v.emplace_back(operations, static_cast<std::size_t>(rows) * config.width);
    }
}

EngineTrace::EngineTrace(const Operations& operations, const ModelConfig& config, int rows)
    : experts(operations, static_cast<std::size_t>(config.layers) * rows * config.active_experts) {
    for (int l = 0; l < config.layers; ++l) {
        expert_input.emplace_back(operations, static_cast<std::size_t>(rows) * config.width);
    }
}

Activations::Activations(const Operations& op, const ModelConfig& c, int rows, bool keep)
    : max_rows(rows), keep_layers(keep) {
    const std::size_t T = rows, D = c.width, E = c.experts, S = c.active_experts, F = c.expert_hidden;
    const std::size_t R = T * S;
    for (int l = 0; l < (keep ? c.layers : 1); ++l) {
        Layer a;
        for (Buffer<float>* buffer :
             {&a.x, &a.attention_input, &a.q, &a.attention_output, &a.x_middle, &a.expert_input}) {
            *buffer = Buffer<float>(op, T * D);
        }
        a.attention_rstd = Buffer<float>(op, T);
        a.expert_rstd = Buffer<float>(op, T);
        a.probs = Buffer<float>(op, T * E);
        a.gates = Buffer<float>(op, T * S);
        a.experts = Buffer<int>(op, T * S);
        a.offsets = Buffer<int>(op, E + 1);
        a.source = Buffer<int>(op, R);
        a.place = Buffer<int>(op, R);
        a.routed = Buffer<float>(op, R * D);
        a.gate_up = Buffer<float>(op, R * 2 * F);
        a.hidden = Buffer<float>(op, R * F);
        a.expert_output = Buffer<float>(op, R * D);
        layers.push_back(std::move(a));
    }
    x = Buffer<float>(op, T * D);
    final_rstd = Buffer<float>(op, T);
    final_input = Buffer<float>(op, T * D);
    logits = Buffer<float>(op, T * c.vocabulary);
    wide = Buffer<float>(op, T * std::max(3 * D, E));
    narrow = Buffer<float>(op, T * D);
    dense = Buffer<int>(op, 2);

    const int longest = std::max(c.width, c.expert_hidden);
    codes = Buffer<std::uint8_t>(op, R * std::max(code_bytes_of(longest), longest));  // FP8 takes a byte a code
    scales = Buffer<std::uint8_t>(op, R * blocks_of(longest));
    residual_codes = Buffer<std::uint8_t>(op, R * code_bytes_of(longest));
    residual_scales = Buffer<std::uint8_t>(op, scales.size());
    outer = Buffer<float>(op, std::max(R, E));

    if (!keep) return;
    d_x = Buffer<float>(op, T * D);
    d_input = Buffer<float>(op, T * D);
    d_narrow = Buffer<float>(op, T * D);
    d_wide = Buffer<float>(op, T * std::max(3 * D, E));
    d_gates = Buffer<float>(op, T * S);
    d_expert_output = Buffer<float>(op, R * D);
    d_gate_up = Buffer<float>(op, R * 2 * F);
    d_hidden = Buffer<float>(op, R * F);
}

// y = x w^T for the rows of each group, in the engine's format. A trainer that quantises activations goes on with the
// value the GEMM consumed: x is replaced by it, because the weight gradient is taken at the quantised operand.
void Model::linear(const EngineWeights& weights, const Linear& w, float* x, Groups groups, int M, Activations& a,
                   float* y) const {
    const Numerics& path = weights.numerics;
    const ActivationFormat format = w.quantized ? path.activations : ActivationFormat::bf16;
    const Nvfp4 main{a.codes.data(), a.scales.data(), a.outer.data(), path.activation_outer_scale};
    switch (format) {
        case ActivationFormat::bf16:
            op_.gemm_bf16(x, w.values.data(), w.outer_or_null(), groups, M, w.N, w.K, y);
            return;
        case ActivationFormat::fp8: {
            const Fp8 packed{a.codes.data(), a.outer.data(), path.activation_outer_scale};
            op_.quantize_fp8(x, groups, M, w.K, packed);
            op_.gemm_fp8(packed, w.fp8(), groups, M, w.N, w.K, y);
            return;
        }
        case ActivationFormat::nvfp4:
            op_.quantize_nvfp4(x, groups, M, w.K, main);
            op_.gemm_w4a4(main, w.nvfp4(), groups, M, w.N, w.K, y);
            if (a.keep_layers) op_.dequantize_nvfp4(main, groups, M, w.K, true, x);
            return;
        case ActivationFormat::nvfp4_residual: {
            const Nvfp4 residual{a.residual_codes.data(), a.residual_scales.data(), nullptr, main.outer_scale};
            op_.quantize_nvfp4(x, groups, M, w.K, main);
            op_.quantize_nvfp4_residual(x, main, groups, M, w.K, path.residual_ratio, path.residual_selection,
                                        residual);
            op_.gemm_w4a4_residual(main, residual, w.nvfp4(), groups, M, w.N, w.K, y);
            return;
        }
    }
}

void Model::quantize_cache(const Pass& pass, Activations& a, float* cached) const {
    const int T = pass.T, D = config_.width;
    const Nvfp4 packed{a.codes.data(), a.scales.data(), a.outer.data(), OuterScale::row};
    const Groups dense{a.dense.data(), 1};
    float* rows = a.narrow.data();
    op_.gather_rows(cached, pass.rows, T, D, rows);
    op_.quantize_nvfp4(rows, dense, T, D, packed);
    op_.dequantize_nvfp4(packed, dense, T, D, true, rows);
    op_.round_bf16(rows, T * D, rows);
    op_.scatter_rows(rows, pass.rows, T, D, cached);
}

void Model::attention_block(const EngineWeights& weights, int l, const Pass& pass, Activations& a,
                            KvCache& cache) const {
    const int T = pass.T, D = config_.width;
    const EngineWeights::Layer& w = weights.layers[l];
    const Groups dense{a.dense.data(), 1};
    Activations::Layer& layer = a.layer(l);
    op_.rmsnorm(layer.x.data(), w.attention_norm, T, D, layer.attention_input.data(), layer.attention_rstd.data());
    linear(weights, w.qkv, layer.attention_input.data(), dense, T, a, a.wide.data());
    op_.split_qkv(a.wide.data(), pass.rows, T, D, weights.numerics.kv_cache, layer.q.data(), cache.k[l].data(),
                  cache.v[l].data());
    if (weights.numerics.kv_cache == KvFormat::nvfp4) {
        quantize_cache(pass, a, cache.k[l].data());
        quantize_cache(pass, a, cache.v[l].data());
    }
    op_.attention(layer.q.data(), cache.k[l].data(), cache.v[l].data(), pass.rows, pass.tree, T, D, config_.heads,
                  layer.attention_output.data());
    linear(weights, w.attention_out, layer.attention_output.data(), dense, T, a, a.narrow.data());
    op_.add(layer.x.data(), a.narrow.data(), T * D, weights.numerics.bf16_residual, layer.x_middle.data());
}

// Leaves the sum over the experts in a.narrow.
void Model::expert_block(const EngineWeights& weights, int l, const Pass& pass, Activations& a) const {
    const int T = pass.T, D = config_.width, E = config_.experts, S = config_.active_experts, F = config_.expert_hidden;
    const int R = T * S;
    const EngineWeights::Layer& w = weights.layers[l];
    Activations::Layer& layer = a.layer(l);
    const int* replay = pass.replay ? pass.replay + static_cast<std::size_t>(l) * T * S : nullptr;
    op_.rmsnorm(layer.x_middle.data(), w.expert_norm, T, D, layer.expert_input.data(), layer.expert_rstd.data());
    op_.gemm_bf16(layer.expert_input.data(), w.router.values.data(), nullptr, {a.dense.data(), 1}, T, E, D,
                  a.wide.data());
    op_.router_topk(a.wide.data(), replay, T, E, S, layer.probs.data(), layer.experts.data(), layer.gates.data());
    op_.route_rows(layer.experts.data(), T, E, S, layer.offsets.data(), layer.source.data(), layer.place.data());
    op_.gather_rows(layer.expert_input.data(), layer.source.data(), R, D, layer.routed.data());
    const Groups experts{layer.offsets.data(), E};
    linear(weights, w.gate_up, layer.routed.data(), experts, R, a, layer.gate_up.data());
    op_.swiglu(layer.gate_up.data(), R, F, layer.hidden.data());
    linear(weights, w.down, layer.hidden.data(), experts, R, a, layer.expert_output.data());
    op_.combine_rows(layer.expert_output.data(), layer.place.data(), layer.gates.data(), T, D, S, a.narrow.data());
}

void Model::forward(const EngineWeights& weights, const Pass& pass, Activations& a, KvCache& cache,
                    EngineTrace* trace) const {
    const int T = pass.T, D = config_.width, S = config_.active_experts;
    check(T <= a.max_rows, "A pass of ", T, " rows does not fit activations for ", a.max_rows, ".");
    const bool bf16 = weights.numerics.bf16_residual;
    a.dense.upload({0, T});
    op_.embed(pass.tokens, pass.positions, weights.token_table.values.data(), weights.position_table, T, D, bf16,
              a.layer(0).x.data());
    for (int l = 0; l < config_.layers; ++l) {
        Activations::Layer& layer = a.layer(l);
        attention_block(weights, l, pass, a, cache);
        expert_block(weights, l, pass, a);
        if (trace) {
            const std::size_t place = static_cast<std::size_t>(l) * pass.tree.rows() * S;
            op_.scatter_rows(layer.expert_input.data(), pass.rows, T, D, trace->expert_input[l].data());
            op_.scatter_rows_int(layer.experts.data(), pass.rows, T, S, trace->experts.data() + place);
        }
        float* next = l + 1 < config_.layers ? a.layer(l + 1).x.data() : a.x.data();
        op_.add(layer.x_middle.data(), a.narrow.data(), T * D, bf16, next);
    }
    op_.rmsnorm(a.x.data(), weights.final_norm, T, D, a.final_input.data(), a.final_rstd.data());
    op_.gemm_bf16(a.final_input.data(), weights.head.values.data(), nullptr, {a.dense.data(), 1}, T, config_.vocabulary,
                  D, a.logits.data());
}

}  // namespace quads
