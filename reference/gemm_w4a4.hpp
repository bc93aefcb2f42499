// W4A4 GEMM, plain and residual-compensated, grouped: the rows of group e meet matrix e of E stacked weights.
//
//   acc = 0
//   for each 16-block b, ascending:  acc = RN(acc + dot_b * (sx_b * sw_b))
//   y[m,n] = RN(acc * RN(gx[m] * gw[e]))
//
// dot_b, the sum of 16 products of E2M1 values, is a multiple of 1/4 of at most 576 and sx * sw has at most 8
// significand bits, so the term is exact in FP32: only the sum over blocks rounds, and only its order is fixed.
// With a residual, each block adds first the main term and then the residual term, with the same weight block: the
// whole is one W4A4 GEMM over an interleaved axis of 2K.
#pragma once

#include "reference/nvfp4.hpp"

namespace quads::reference {

void gemm_w4a4(Nvfp4 x,        // (M, K) packed activations, outer (M) or (E)
               Nvfp4 w,        // (E * N, K) packed weights, outer (E), OuterScale::group
               Groups groups,  // of the M rows
               int M, int N, int K,
               float* y);      // (M, N)

void gemm_w4a4_residual(Nvfp4 x,         // (M, K) main pass
                        Nvfp4 residual,  // (M, K) second pass: codes and scales; the outer scale is x's
                        Nvfp4 w,         // (E * N, K), outer (E)
                        Groups groups, int M, int N, int K,
                        float* y);       // (M, N)

// The same bits, vectorised across outputs (gemm_fast.cpp).
namespace fast {
void gemm_w4a4(Nvfp4 x, Nvfp4 w, Groups groups, int M, int N, int K, float* y);
void gemm_w4a4_residual(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y);
}  // namespace fast

}  // namespace quads::reference
