// BF16 GEMM, grouped: y[m,n] = sum_k x[m,k] w[e,n,k] for row m of group e, ascending k from 0, RN to FP32 at each step.
// A product of two BF16 values of at least 2^-126 is exact in FP32, so FMA and multiply-add give the same bits; below
// that, FMA is meant.
#pragma once

#include "reference/dims.hpp"

namespace quads::reference {

void gemm_bf16(const float* x,        // (M, K) BF16-valued
               const float* w,        // (E, N, K) BF16-valued
               const float* w_outer,  // (E) factor of the finished sum, y = RN(acc * w_outer[e]); or nullptr
               Groups groups,         // of the M rows
               int M, int N, int K,
               float* y);             // (M, N) FP32

// Gradient with respect to x: dx[m,k] = RN(w_outer[e] * sum_n bf16(dy[m,n]) w[e,n,k]), ascending n from 0.
void gemm_bf16_backward_input(const float* dy,       // (M, N) FP32, rounded to BF16 here
                              const float* w,        // (E, N, K) BF16-valued
                              const float* w_outer,  // (E) or nullptr
                              Groups groups, int M, int N, int K,
                              float* dx);            // (M, K)

// Gradient with respect to w: dw[e,n,k] = sum_m bf16(dy[m,n]) bf16(x[m,k]) over the rows of group e, ascending m.
// An empty group gives zeros. With quantised weights this is the straight-through gradient of the master weight.
void gemm_bf16_backward_weight(const float* dy,  // (M, N) FP32, rounded to BF16 here
                               const float* x,   // (M, K) FP32, rounded to BF16 here
                               Groups groups, int M, int N, int K,
                               float* dw);       // (E, N, K), overwritten

// The same bits, vectorised across outputs (gemm_fast.cpp).
namespace fast {
void gemm_bf16(const float* x, const float* w, const float* w_outer, Groups groups, int M, int N, int K, float* y);
void gemm_bf16_backward_input(const float* dy, const float* w, const float* w_outer, Groups groups, int M, int N, int K,
                              float* dx);
void gemm_bf16_backward_weight(const float* dy, const float* x, Groups groups, int M, int N, int K, float* dw);
}  // namespace fast

}  // namespace quads::reference
