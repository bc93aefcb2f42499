// Lab 03: W4A4 GEMM. Read notebook 03 and reference/gemm_w4a4.hpp. First one block: its dot product is exact in any
// order. Then the sum over blocks, which rounds and therefore has a fixed order. Check with: make lab LAB=03
// When it passes, the same code passes `make verify OP=gemm_w4a4`: see tests/verify/kernel.h.
#include "notebooks/labs/labs.hpp"
#include "reference/codec.hpp"

namespace student {

float block_term(const std::uint8_t*, std::uint8_t, const std::uint8_t*, std::uint8_t) {
    throw NotWritten("block_term");
}

void gemm_w4a4(const std::uint8_t*, const std::uint8_t*, const float*, const std::uint8_t*, const std::uint8_t*,
               const float*, int, int, int, float*) {
    throw NotWritten("gemm_w4a4");
}

}  // namespace student
