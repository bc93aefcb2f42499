// AdamW (Loshchilov & Hutter 2019) and the gradient norm.
#pragma once

#include <cstdint>

namespace quads {

// One step's constants, computed once on the host.
struct AdamwStep {
    float learning_rate, beta1, beta2, epsilon, weight_decay;
    float correction1;     // 1 - beta1^t
    float correction2;     // 1 - beta2^t
    float gradient_scale;  // clips the gradient norm: g = grad * gradient_scale
};

namespace reference {

// Per element, each operation rounded on its own:
//   g = grad * gradient_scale;  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * (g * g)
//   w = w - learning_rate * ((m / correction1) / (sqrt(v / correction2) + epsilon) + weight_decay * w)
void adamw(float* w, const float* grad, float* m, float* v,  // (n) each
           std::int64_t n, AdamwStep step);

// sum of x[i]^2: chunks of 256 consecutive elements by ascending fma from 0, then the chunk sums (of x^2, now added,
// not squared) again in chunks of 256 ascending, until one is left.
void sum_squares(const float* x, std::int64_t n,
                 float* partial,  // scratch, at least n / 256 + 2 floats times 2
                 float* result);  // (1)

}  // namespace reference
}  // namespace quads
