#include "src/model.hpp"

namespace quads {
namespace {

// The backward of one layer, from a.d_x = d loss / d (layer's output) to a.d_x = d loss / d (layer's input).
class LayerBackward {
public:
    LayerBackward(const Operations& op, const ModelConfig& config, const EngineWeights& weights, const Pass& pass,
                  Activations& activations, const KvCache& cache, const ParameterLayout& layout, float* gradient, int l)
        : op_(op),
          c_(config),
          w_(weights.layers[l]),
          pass_(pass),
          a_(activations),
          layer_(activations.layer(l)),
          k_(cache.k[l].data()),
          v_(cache.v[l].data()),
          shape_(layout.layers[l]),
          gradient_(gradient) {}

    // x_out = x_middle + combine(experts(norm(x_middle)))
    void experts(float balance) const {
        const int T = pass_.T, D = c_.width, E = c_.experts, S = c_.active_experts, F = c_.expert_hidden, R = T * S;
        const Groups experts{layer_.offsets.data(), E};
        const Groups dense{a_.dense.data(), 1};
        op_.combine_rows_backward(a_.d_x.data(), layer_.expert_output.data(), layer_.place.data(), layer_.gates.data(),
                                  T, D, S, a_.d_expert_output.data(), a_.d_gates.data());
        linear(w_.down, layer_.hidden.data(), a_.d_expert_output.data(), experts, R, shape_.down, a_.d_hidden.data());
        op_.swiglu_backward(a_.d_hidden.data(), layer_.gate_up.data(), R, F, a_.d_gate_up.data());
        // The routed rows' gradient reuses the array of the experts' outputs, which is used up.
        float* d_routed = a_.d_expert_output.data();
        linear(w_.gate_up, layer_.routed.data(), a_.d_gate_up.data(), experts, R, shape_.gate_up, d_routed);
        op_.combine_rows(d_routed, layer_.place.data(), nullptr, T, D, S, a_.d_input.data());
        op_.router_topk_backward(a_.d_gates.data(), layer_.probs.data(), layer_.experts.data(), layer_.gates.data(),
                                 layer_.offsets.data(), balance, T, E, S, a_.d_wide.data());
        linear(w_.router, layer_.expert_input.data(), a_.d_wide.data(), dense, T, shape_.router, a_.d_narrow.data());
        op_.add(a_.d_input.data(), a_.d_narrow.data(), T * D, false, a_.d_input.data());
        norm(layer_.x_middle.data(), w_.expert_norm, layer_.expert_rstd.data(), shape_.expert_norm);
    }

    // x_middle = x + attention(norm(x))
    void attention() const {
        const int T = pass_.T, D = c_.width;
        const Groups dense{a_.dense.data(), 1};
        linear(w_.attention_out, layer_.attention_output.data(), a_.d_x.data(), dense, T, shape_.attention_out,
               a_.d_narrow.data());
        op_.attention_backward(a_.d_narrow.data(), layer_.q.data(), k_, v_, pass_.tree, D, c_.heads, a_.d_wide.data());
        linear(w_.qkv, layer_.attention_input.data(), a_.d_wide.data(), dense, T, shape_.qkv, a_.d_input.data());
        norm(layer_.x.data(), w_.attention_norm, layer_.attention_rstd.data(), shape_.attention_norm);
    }

private:
    // Both gradients of y = x w^T.
    void linear(const Linear& w, const float* x, const float* dy, Groups groups, int M, const ParameterShape& shape,
                float* dx) const {
        op_.gemm_bf16_backward_weight(dy, x, groups, M, w.N, w.K, gradient_ + shape.offset);
        op_.gemm_bf16_backward_input(dy, w.values.data(), w.outer_or_null(), groups, M, w.N, w.K, dx);
    }

    // Adds the gradient that reaches the residual stream through a norm, d_input, to d_x.
    void norm(const float* x, const float* gain, const float* rstd, const ParameterShape& shape) const {
        op_.rmsnorm_backward(a_.d_input.data(), x, gain, rstd, pass_.T, c_.width, a_.d_narrow.data(),
                             gradient_ + shape.offset);
        op_.add(a_.d_x.data(), a_.d_narrow.data(), pass_.T * c_.width, false, a_.d_x.data());
    }

    const Operations& op_;
    const ModelConfig& c_;
    const EngineWeights::Layer& w_;
    const Pass& pass_;
    Activations& a_;
    Activations::Layer& layer_;
    const float* k_;
    const float* v_;
    const LayerParameters& shape_;
    float* gradient_;
};

}  // namespace

void Model::backward(const EngineWeights& weights, const Pass& pass, Activations& a, const KvCache& cache,
                     const float* dlogits, float balance, float* gradient) const {
    check(a.keep_layers && pass.T == pass.tree.rows(),
          "The backward needs a forward over the whole tree with keep_layers, but this one had ", pass.T, " of ",
          pass.tree.rows(), " rows.");
    const ParameterLayout layout(config_);
    const int T = pass.T, D = config_.width, V = config_.vocabulary;
    const Groups dense{a.dense.data(), 1};
    op_.gemm_bf16_backward_weight(dlogits, a.final_input.data(), dense, T, V, D, gradient + layout.head.offset);
    op_.gemm_bf16_backward_input(dlogits, weights.head.values.data(), nullptr, dense, T, V, D, a.d_input.data());
    op_.rmsnorm_backward(a.d_input.data(), a.x.data(), weights.final_norm, a.final_rstd.data(), T, D, a.d_x.data(),
                         gradient + layout.final_norm.offset);
    for (int l = config_.layers - 1; l >= 0; --l) {
        const LayerBackward layer(op_, config_, weights, pass, a, cache, layout, gradient, l);
        layer.experts(balance);
        layer.attention();
    }
    op_.embed_backward(a.d_x.data(), pass.tokens, T, D, V, gradient + layout.token_table.offset);
    op_.embed_backward(a.d_x.data(), pass.positions, T, D, config_.positions, gradient + layout.position_table.offset);
}

}  // namespace quads
