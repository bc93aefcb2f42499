// Lab 04: residual activation compensation. Read notebook 09 and quantize_nvfp4_residual in reference/nvfp4.hpp: what
// quantising x lost is quantised again, for the channels that lost most. reference/nvfp4.hpp may be called.
// Check with: make lab LAB=04
#include "notebooks/labs/labs.hpp"
#include "reference/codec.hpp"
#include "reference/nvfp4.hpp"

namespace student {

void quantize_residual(const float* x, const std::uint8_t* codes, const std::uint8_t* scales, const float* outer, int M,
                       int K, float ratio, std::uint8_t* residual_codes, std::uint8_t* residual_scales) {
    throw NotWritten("quantize_residual");
}

void gemm_w4a4_residual(const std::uint8_t* x_codes, const std::uint8_t* x_scales, const float* x_outer,
                        const std::uint8_t* residual_codes, const std::uint8_t* residual_scales,
                        const std::uint8_t* w_codes, const std::uint8_t* w_scales, const float* w_outer, int M, int N,
                        int K, float* y) {
    throw NotWritten("gemm_w4a4_residual");
}

}  // namespace student
