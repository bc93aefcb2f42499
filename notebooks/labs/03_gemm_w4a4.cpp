// Lab 03: W4A4 GEMM. Read notebook 03 and reference/gemm_w4a4.hpp. First one block: its dot product is exact in any
// order. Then the sum over blocks, which rounds and therefore has a fixed order. Check with: make lab LAB=03
// When it passes, show it what real kernels fail on: make verify OP=gemm_w4a4 KERNEL=notebooks/labs/03_gemm_w4a4.cpp
#include "notebooks/labs/labs.hpp"
#include "reference/codec.hpp"
#include "tests/verify/kernel.h"

namespace student {

float block_term(const std::uint8_t* x, std::uint8_t x_scale, const std::uint8_t* w, std::uint8_t w_scale) {
    throw NotWritten("block_term");
}

void gemm_w4a4(const std::uint8_t* x_codes, const std::uint8_t* x_scales, const float* x_outer,
               const std::uint8_t* w_codes, const std::uint8_t* w_scales, const float* w_outer, int M, int N, int K,
               float* y) {
    throw NotWritten("gemm_w4a4");
}

}  // namespace student

// The name under which make verify looks for it.
void kernel_gemm_w4a4(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer, const uint8_t* w_codes,
                      const uint8_t* w_scales, const float* w_outer, int M, int N, int K, float* y) {
    student::gemm_w4a4(x_codes, x_scales, x_outer, w_codes, w_scales, w_outer, M, N, K, y);
}
