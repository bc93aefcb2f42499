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
//
// The same with the sum over K split, so that a GPU can form its parts at the same time. Range s of `splits` holds the
// L = split_blocks(K, splits) blocks from s L on, those that exist; the last ranges may hold fewer or none:
//
//   p_s = the sum of range s from 0, as above       acc = RN(RN(p_0 + p_1) + p_2) + ..., ascending
//
// Other splits give other bits, so `splits` is an argument and never a kernel's choice; 1 is the plain GEMM.
#pragma once

#include "reference/nvfp4.hpp"

namespace quads {

// Scale blocks of a range: whole steps of 8 blocks, as many for every range as cover K.
QUADS_HOST_DEVICE inline int split_blocks(int K, int splits) {
    constexpr int kStep = 8;
    const int steps = (blocks_of(K) + kStep - 1) / kStep;
    return (steps + splits - 1) / splits * kStep;
}

namespace reference {

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

// Throw Error if splits < 1.
void gemm_w4a4_split(Nvfp4 x, Nvfp4 w, Groups groups, int M, int N, int K, int splits, float* y);
void gemm_w4a4_residual_split(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, int splits,
                              float* y);

// The same bits as the first two, vectorised across outputs (gemm_fast.cpp).
namespace fast {
void gemm_w4a4(Nvfp4 x, Nvfp4 w, Groups groups, int M, int N, int K, float* y);
void gemm_w4a4_residual(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y);
}  // namespace fast

}  // namespace reference
}  // namespace quads
