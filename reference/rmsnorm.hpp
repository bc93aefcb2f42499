// RMSNorm: h[t,d] = bf16((x[t,d] * rstd[t]) * g[d]),  rstd[t] = exact_rsqrt(ss / D + 1e-6),  ss = sum_d x[t,d]^2 by
// ascending fma from 0. Zhang & Sennrich 2019.
#pragma once

namespace quads::reference {

void rmsnorm(const float* x,  // (T, D)
             const float* g,  // (D) gain
             int T, int D,
             float* h,        // (T, D) BF16-valued
             float* rstd);    // (T) kept for the backward

// With u = dh * g:  c = (sum_d u * x) * rstd * rstd / D (ascending fma, then left to right),
//   dx[t,d] = rstd * (u[d] - x[d] * c)            each operation rounded on its own; rounding of h is passed through
//   dg[d]   = sum_t dh[t,d] * (x[t,d] * rstd[t])  ascending t, by fma from 0
void rmsnorm_backward(const float* dh,    // (T, D)
                      const float* x,     // (T, D)
                      const float* g,     // (D)
                      const float* rstd,  // (T)
                      int T, int D,
                      float* dx,          // (T, D) overwritten
                      float* dg);         // (D) overwritten

}  // namespace quads::reference
