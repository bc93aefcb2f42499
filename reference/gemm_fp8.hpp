// FP8 (E4M3): quantise with one outer scale per row or group, and a grouped GEMM.
//   g = amax / 448, or 1 if that is 0;  code = E4M3(x / g), RNE, saturating;  value = code * g
//   y[m,n] = RN(acc * RN(gx * gw)),  acc = sum_k x[m,k] w[e,n,k] over decoded codes, ascending k from 0
// A product of two E4M3 values is exact in FP32.
#pragma once

#include "reference/nvfp4.hpp"

namespace quads {

struct Fp8 {
    std::uint8_t* codes;     // (M, K) E4M3
    float* outer;            // (M) or (E)
    OuterScale outer_scale;
};

namespace reference {

// Throws Error that names row and column if x holds NaN or Inf, or if K < 1; then nothing is written.
void quantize_fp8(const float* x,  // (M, K)
                  Groups groups, int M, int K,
                  Fp8 out);

// x = code * g, or the code's value alone where with_outer is false.
void dequantize_fp8(Fp8 q, Groups groups, int M, int K, bool with_outer,
                    float* x);  // (M, K)

void gemm_fp8(Fp8 x,  // (M, K)
              Fp8 w,  // (E * N, K), outer (E), OuterScale::group
              Groups groups, int M, int N, int K,
              float* y);  // (M, N)

namespace fast {
void gemm_fp8(Fp8 x, Fp8 w, Groups groups, int M, int N, int K, float* y);
}

}  // namespace reference
}  // namespace quads
