// Lab 04: residual activation compensation. Read notebook 09 and quantize_nvfp4_residual in reference/nvfp4.hpp: what
// quantising x lost is quantised again, for the channels that lost most. reference/nvfp4.hpp may be called.
// Check with: make lab LAB=04
#include "notebooks/labs/labs.hpp"
#include "reference/codec.hpp"
#include "reference/nvfp4.hpp"

namespace student {

void quantize_residual(const float*, const std::uint8_t*, const std::uint8_t*, const float*, int, int, float,
                       std::uint8_t*, std::uint8_t*) {
    throw NotWritten("quantize_residual");
}

void gemm_w4a4_residual(const std::uint8_t*, const std::uint8_t*, const float*, const std::uint8_t*,
                        const std::uint8_t*, const std::uint8_t*, const std::uint8_t*, const float*, int, int, int,
                        float*) {
    throw NotWritten("gemm_w4a4_residual");
}

}  // namespace student
