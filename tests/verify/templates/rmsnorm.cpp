// RMSNorm: a correct start. Make it yours, then: make verify OP=rmsnorm KERNEL=this_file
#include <cmath>

#include "reference/codec.hpp"
#include "tests/verify/kernel.h"

void kernel_rmsnorm(const float* x, const float* g, int T, int D, float* h, float* rstd) {
    for (int t = 0; t < T; ++t) {
        const float* row = x + t * D;
        float squares = 0.0f;
        for (int d = 0; d < D; ++d) squares = std::fma(row[d], row[d], squares);
        rstd[t] = 1.0f / std::sqrt(squares / D + 1e-6f);
        for (int d = 0; d < D; ++d) h[t * D + d] = quads::bf16_round((row[d] * rstd[t]) * g[d]);
    }
}
