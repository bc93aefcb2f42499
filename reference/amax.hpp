// The first step of every quantiser: look at all of the input before anything is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/codec.hpp"

namespace quads::reference {

// Bit pattern of the largest |x[i]|: magnitudes order as integers, and NaN and Inf come out on top instead of lost.
inline std::uint32_t amax_bits(const float* x, int n) {
    std::int32_t largest = 0;
    for (int i = 0; i < n; ++i) {
        const std::int32_t magnitude = static_cast<std::int32_t>(float_bits(x[i]) & 0x7FFFFFFFu);
        largest = magnitude > largest ? magnitude : largest;
    }
    return static_cast<std::uint32_t>(largest);
}

// amax[m] = max_k |x[m,k]|. Throws Error that names the first row and column that hold NaN or Inf, or if K < 1.
std::vector<float> finite_row_amax(const float* x,  // (M, K)
                                   int M, int K,
                                   const char* format);  // name for the message, e.g. "NVFP4"

// The error of finite_row_amax; the CUDA quantisers throw it too.
[[noreturn]] void fail_non_finite(const char* format, int row, int column, float value);

}  // namespace quads::reference
