// The model's parameters: one flat FP32 array, so that the optimiser, the gradient norm and a checkpoint each take one
// pass, and a table of where each tensor lies in it.
#pragma once

#include <string>
#include <vector>

#include "src/config.hpp"

namespace quads {

// `matrices` stacked matrices of rows x columns (a vector is one matrix of one row).
struct ParameterShape {
    std::string name;
    int matrices, rows, columns;
    std::size_t offset;  // of its first element in the flat array

    std::size_t size() const { return static_cast<std::size_t>(matrices) * rows * columns; }
};

struct LayerParameters {
    ParameterShape attention_norm;  // (D)
    ParameterShape qkv;             // (3D, D)
    ParameterShape attention_out;   // (D, D)
    ParameterShape expert_norm;     // (D)
    ParameterShape router;          // (E, D)
    ParameterShape gate_up;         // (E, 2F, D): rows 0 .. F-1 of a matrix gate, F .. 2F-1 up
    ParameterShape down;            // (E, D, F)
};

struct ParameterLayout {
    explicit ParameterLayout(const ModelConfig& config);

    ParameterShape token_table;     // (V, D)
    ParameterShape position_table;  // (positions, D)
    std::vector<LayerParameters> layers;
    ParameterShape final_norm;      // (D)
    ParameterShape head;            // (V, D)
    std::size_t size = 0;           // elements of the flat array

    // Every tensor, in the order of the flat array.
    std::vector<ParameterShape> all() const;
};

// Initial values: norms 1, others zero-mean with the standard deviations of the feasibility study (token table 0.5,
// positions 0.1, matrices 1/sqrt(columns), the two matrices that write to the residual stream divided by sqrt(2L)).
// Deterministic in the seed: an element is the sum of 12 uniforms minus 6, of Philox key (seed, 2) and counter (tensor,
// element, word group, 0).
std::vector<float> initial_parameters(const ModelConfig& config, std::uint32_t seed);

}  // namespace quads
