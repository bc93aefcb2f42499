// Mixture-of-experts routing: top-k choice, sorting rows by expert, combining the experts' outputs, and the backwards.
//   probs   = softmax of the FP32 logits (exact_exp of logit - max, sum over ascending e)
//   experts = the S largest logits, in descending order; equal logits: the lower expert index wins
//   gates   = probs[chosen] / (sum of the chosen probs, ascending slot)
#pragma once

#include "reference/dims.hpp"

namespace quads::reference {

void router_topk(const float* logits,  // (T, E)
                 const int* replay,    // (T, S) experts to use instead of the top-k (routing replay), or nullptr
                 int T, int E, int S,
                 float* probs,         // (T, E)
                 int* experts,         // (T, S)
                 float* gates);        // (T, S)

// Sorts the R = T * S (token, slot) pairs by expert, ascending (token, slot) inside one expert.
void route_rows(const int* experts,  // (T, S)
                int T, int E, int S,
                int* offsets,        // (E + 1) the Groups of the routed rows
                int* source,         // (R) token of each routed row
                int* place);         // (T, S) routed row of each (token, slot)

// y[r,:] = x[source[r],:]
void gather_rows(const float* x,     // (T, D)
                 const int* source,  // (R)
                 int R, int D,
                 float* y);          // (R, D)

// y[t,d] = sum_s gates[t,s] * x[place[t,s],d], ascending slot, by fma from 0; without gates, the plain sum from 0
// (which is the backward of gather_rows).
void combine_rows(const float* x,      // (R, D)
                  const int* place,    // (T, S)
                  const float* gates,  // (T, S) or nullptr
                  int T, int D, int S,
                  float* y);           // (T, D)

// Backward of combine_rows:  dx[place[t,s],d] = gates[t,s] * dy[t,d];  dgates[t,s] = sum_d dy[t,d] * x[place[t,s],d] by
// ascending fma from 0.
void combine_rows_backward(const float* dy,     // (T, D)
                           const float* x,      // (R, D)
                           const int* place,    // (T, S)
                           const float* gates,  // (T, S)
                           int T, int D, int S,
                           float* dx,           // (R, D) overwritten
                           float* dgates);      // (T, S) overwritten

// Backward of router_topk, plus the gradient of the load-balance loss
//   balance * E * sum_e (count_e / T) * (sum_t probs[t,e] / T),   count_e = offsets[e+1] - offsets[e] (no gradient).
// With z = sum of the chosen probs (ascending slot), per row:
//   dp[e]       = ((balance * E) * (count_e / T)) / T,   then for ascending slot s with e = experts[t,s]:
//   dp[e]      += (dgates[s] - sum_j dgates[j] gates[j]) / z       (inner sum by ascending fma)
//   dlogits[e]  = probs[e] * (dp[e] - sum_j probs[j] dp[j])        (inner sum by ascending fma)
void router_topk_backward(const float* dgates,  // (T, S)
                          const float* probs,   // (T, E)
                          const int* experts,   // (T, S)
                          const float* gates,   // (T, S)
                          const int* offsets,   // (E + 1)
                          float balance, int T, int E, int S,
                          float* dlogits);      // (T, E) overwritten

}  // namespace quads::reference
