// The mixture-of-experts transformer, forward and backward, once for every engine and device.
//
//   x = token_table[token] + position_table[position]
//   per layer:  h = rmsnorm(x);   x += attention(h Wqkv) Wout
//               h = rmsnorm(x);   x += sum over the top-k experts e of gate_e * (swiglu(h Wgate_up_e) Wdown_e)
//   logits = rmsnorm(x) Whead
#pragma once

#include <vector>

#include "src/engine.hpp"

namespace quads {

// The rows of one forward call. All pointers lie in the device's memory.
struct Pass {
    int T;
    const int* tokens;     // (T)
    const int* positions;  // (T)
    const int* rows;       // (T) place of each row in the tree, hence in the KV cache
    SequenceTree tree;
    const int* replay;  // (L, tree.rows(), S) expert choice to follow, in tree order and for all rows; or nullptr
};

// Keys and values of every layer, in tree order.
struct KvCache {
    KvCache(const Operations& operations, const ModelConfig& config, int rows);
    std::vector<Buffer<float>> k, v;  // L times (rows, D)
};

// What an engine computed, in tree order: kept by the rollout to be compared with the trainer.
struct EngineTrace {
    EngineTrace(const Operations& operations, const ModelConfig& config, int rows);
    std::vector<Buffer<float>> expert_input;  // L times (rows, D): what the experts' matrices are applied to
    Buffer<int> experts;                      // (L, rows, S)
};

// The arrays of a forward pass of up to max_rows rows. With keep_layers every layer has its own (the backward needs
// them), otherwise all layers share one set.
struct Activations {
    Activations(const Operations& operations, const ModelConfig& config, int max_rows, bool keep_layers);

    struct Layer {
        Buffer<float> x, attention_rstd, attention_input, q, attention_output;  // (T, D), (T), (T, D) ...
        Buffer<float> x_middle, expert_rstd, expert_input;                      // (T, D), (T), (T, D)
        Buffer<float> probs, gates;                                             // (T, E), (T, S)
        Buffer<int> experts, offsets, source, place;                            // (T, S), (E + 1), (R), (T, S)
        Buffer<float> routed, gate_up, hidden, expert_output;                   // (R, D), (R, 2F), (R, F), (R, D)
    };
    Layer& layer(int l) { return layers[layers.size() == 1 ? 0 : l]; }

    int max_rows;
    bool keep_layers;
    std::vector<Layer> layers;
    Buffer<float> x, final_rstd, final_input, logits;  // (T, D), (T), (T, D), (T, V)
    Buffer<float> wide, narrow;                        // scratch (T, max(3D, E)) and (T, D)
    Buffer<int> dense;                                 // {0, T}: the one group of a dense layer
    // Scratch of the activation quantisers: main pass and residual.
    Buffer<std::uint8_t> codes, scales, residual_codes, residual_scales;
    Buffer<float> outer;
    // Scratch of the backward, present with keep_layers: gradients of the arrays they are named after.
    Buffer<float> d_x, d_input, d_narrow, d_wide;                 // (T, D) three times, (T, max(3D, E, S))
    Buffer<float> d_gates, d_expert_output, d_gate_up, d_hidden;  // (T, S), (R, D), (R, 2F), (R, F)
};

class Model {
public:
    explicit Model(const Operations& operations, const ModelConfig& config) : op_(operations), config_(config) {}

    // Fills activations.logits (T, V) and the cache rows of the pass. A trace, where given, receives the rows it
    // passes.
    void forward(const EngineWeights& weights, const Pass& pass, Activations& activations, KvCache& cache,
                 EngineTrace* trace) const;

    // Gradient of the master weights, into the flat array `gradient` (overwritten), from dlogits (T, V), for the pass
    // just run with keep_layers over a whole tree. Straight-through: quantisers and roundings pass gradients unchanged.
    // `balance` is the weight of the load-balance loss of one layer.
    void backward(const EngineWeights& weights, const Pass& pass, Activations& activations, const KvCache& cache,
                  const float* dlogits, float balance, float* gradient) const;

private:
    void attention_block(const EngineWeights& weights, int l, const Pass& pass, Activations& a, KvCache& cache) const;
    // The pass' rows of K or V as an NVFP4 cache gives them back: KvFormat::nvfp4.
    void quantize_cache(const Pass& pass, Activations& a, float* cached) const;
    void expert_block(const EngineWeights& weights, int l, const Pass& pass, Activations& a) const;
    void linear(const EngineWeights& weights, const Linear& w, float* x, Groups groups, int M, Activations& a,
                float* y) const;

    const Operations& op_;
    ModelConfig config_;
};

}  // namespace quads
