// Lab 06: backward through a quantised linear layer. Read notebook 06 and the two gradients in reference/gemm_bf16.hpp.
// dx sees the quantised weight, because the forward did; dw ignores the quantiser, which is the straight-through
// estimator. Check with: make lab LAB=06
#include "notebooks/labs/labs.hpp"
#include "reference/codec.hpp"

namespace student {

void backward_input(const float* dy, const float* w, float w_outer, int M, int N, int K, float* dx) {
    throw NotWritten("backward_input");
}

void backward_weight(const float* dy, const float* x, int M, int N, int K, float* dw) {
    throw NotWritten("backward_weight");
}

}  // namespace student
