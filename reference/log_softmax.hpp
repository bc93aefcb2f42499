// Log-probabilities of the next token, their backward, and sampling.
//   z = logits / temperature,  m = max z,  logp[v] = (z[v] - m) - exact_log(sum_v exact_exp(z[v] - m)),  ascending v
#pragma once

#include <cstdint>

namespace quads::reference {

void log_softmax(const float* logits,  // (T, V)
                 float temperature,    // > 0, the same on both sides of the ratio
                 int T, int V,
                 float* logp,          // (T, V)
                 float* entropy);      // (T)  -sum_v exact_exp(logp[v]) * logp[v], by ascending fma from 0

// Gradient of sum_{t,v} weights[t,v] * logp[t,v]:
//   dlogits[t,v] = (weights[t,v] - exact_exp(logp[t,v]) * (sum_v weights[t,v])) / temperature,  ascending v
void log_softmax_backward(const float* logp,     // (T, V)
                          const float* weights,  // (T, V) d loss / d logp
                          float temperature, int T, int V,
                          float* dlogits);       // (T, V) overwritten

// Draws one token per sample by inverse CDF in ascending token id: the first v with u < sum_{i<=v} exact_exp(logp[i]),
// or the last token with a probability above 0 where rounding leaves u beyond the sum. u = uniform24(word) in [0, 1) of
// the first Philox word of counter (step, first_sequence + n, position, 0) and key (seed, 0).
void sample(const float* logp,       // (T, V)
            const int* row,          // (N) row of logp to draw sample n from
            int N, int V,
            std::uint32_t seed, std::uint32_t step, std::uint32_t first_sequence, std::uint32_t position,
            int* token,              // (N)
            float* token_logp);      // (N)

// The error of `sample` where every probability of a row of logp is 0 or NaN.
[[noreturn]] void fail_no_token(int row);

}  // namespace quads::reference
