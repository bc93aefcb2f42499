// Second opinions on the GEMMs: an exact sum that has no order, and models of what tensor cores do to the bits.
#pragma once

#include <cstdint>

#include "reference/nvfp4.hpp"

namespace quads::reference {

// Exact W4A4 GEMM. Every term dot_b * (sx_b * sw_b) is a multiple of 2^-20, so an int64 sum in that unit is exact:
//   sum[m,n] = 2^20 * sum_b term_b,   magnitude[m,n] = 2^20 * sum_b |term_b|
// both before the outer scales. A GEMM in FP32 with A additions (B, or 2B with a residual) must satisfy
//   |acc - 2^-20 * sum| <= A * 2^-24 * 2^-20 * magnitude    up to terms of order A^2 2^-48
// and equal it for A = 1. Throws Error if K < 1, or above 32768 blocks, where a sum could overflow.
void gemm_w4a4_exact(Nvfp4 x,                // (M, K) packed
                     const Nvfp4* residual,  // (M, K) packed, or nullptr for the plain GEMM
                     Nvfp4 w,                // (E * N, K) packed
                     Groups groups, int M, int N, int K,
                     std::int64_t* sum,         // (M, N) units of 2^-20
                     std::int64_t* magnitude);  // (M, N) units of 2^-20

// The models below share one rule, the fused dot-add of tensor cores: the terms and the accumulator C are aligned to
// the largest exponent of those that are not 0, each is truncated toward 0 to F fraction bits below it, the sum is
// exact and is truncated toward 0 to FP32. NaN is 0x7FFFFFFF. K is taken in steps of one instruction, C carries over,
// zeros fill the last step. Source: Xie et al., MMA-Sim, arXiv 2511.10909.

// BF16 GEMM by Hopper's mma.m16n8k16, arguments as gemm_bf16: 16 products and C at once, F = 25. A product keeps its
// unnormalised significand in [1, 4) with exponent ea + eb. Measured on an H200: equal in all of 2.56 million outputs.
void gemm_bf16_tensor_core(const float* x,        // (M, K) BF16-valued
                           const float* w,        // (E, N, K) BF16-valued
                           const float* w_outer,  // (E) or nullptr
                           Groups groups, int M, int N, int K,
                           float* y);             // (M, N)

// W4A4 GEMM by Blackwell's mma.m16n8k64 kind::mxf4nvf4, arguments as gemm_w4a4: four block terms and C at once, F = 35.
// The exponent of a term is that of its two scales, whatever the dot. A published model: NOT YET CONFIRMED ON HARDWARE.
void gemm_w4a4_tensor_core(Nvfp4 x, Nvfp4 w, Groups groups, int M, int N, int K, float* y);

}  // namespace quads::reference
