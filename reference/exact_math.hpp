// exp, log, sigmoid, silu and 1/sqrt whose bits agree on every machine, host or device: built only from IEEE
// + - * / sqrt fma, which are correctly rounded everywhere, and from bit casts. Library functions differ between
// machines in the last bit. Branch-free, so that loops over them vectorise.
//
// Compile without fast-math and without contraction (g++ -ffp-contract=off, nvcc -fmad=false): a fused operation is
// written as fmaf. Right at 0, infinities, NaN (a NaN stays a NaN of any payload), overflow and subnormals.
//
// Largest error in units in the last place of the result, over all floats (tests/test_exact_math.cpp):
//   exp 0.94   log 0.84   sigmoid 2.41   silu 3.32, and 2^-142 absolute below x = -87   1 / sqrt 1.50
#pragma once

#include <cmath>
#include <cstdint>

#include "reference/codec.hpp"

namespace quads {

// e^x = 2^n * e^r with n = round(x / ln 2), |r| <= 0.35, and e^r by its Taylor series.
QUADS_HOST_DEVICE inline float exact_exp(float x) {
    // Beyond these bounds the result is 0 or +inf; a NaN fails both comparisons and stays.
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;

    // Adding 1.5 * 2^23 leaves no bits for a fraction: the sum is rounded to an integer, found in its low bits.
    const float shifted = fmaf(x, 1.44269504f, 12582912.0f);
    const float n = shifted - 12582912.0f;

    // ln 2 in two pieces: n * high is exact, so r keeps the bits that x - n * ln2 would cancel. What the rounding of r
    // drops is added with the small terms.
    const float high = 0x1.62e4p-1f, low = 0x1.7f7d1cp-20f;
    const float coarse = fmaf(n, -high, x);
    const float r = fmaf(n, -low, coarse);
    const float dropped = fmaf(n, -low, coarse - r);

    float series = 1.0f / 5040;
    series = fmaf(series, r, 1.0f / 720);
    series = fmaf(series, r, 1.0f / 120);
    series = fmaf(series, r, 1.0f / 24);
    series = fmaf(series, r, 1.0f / 6);
    series = fmaf(series, r, 0.5f);
    series = (fmaf(series * r, r, dropped) + r) + 1.0f;

    // 2^n in two factors, each a normal number: n reaches 128, and -150 where the result is subnormal.
    const int exponent = static_cast<int>(float_bits(shifted)) - 0x4B400000;
    const int half = exponent >> 1;
    const float factor0 = float_from_bits(static_cast<std::uint32_t>(half + 127) << 23);
    const float factor1 = float_from_bits(static_cast<std::uint32_t>(exponent - half + 127) << 23);
    return series * factor0 * factor1;
}

// log x = e * ln 2 + log m with x = m * 2^e, sqrt(1/2) <= m < sqrt(2), and log m = 2 atanh((m - 1) / (m + 1)) arranged
// so that m - 1, which is exact, is added last.
QUADS_HOST_DEVICE inline float exact_log(float x) {
    const bool subnormal = x < 0x1p-126f;
    const float normal = subnormal ? x * 0x1p23f : x;

    // Subtracting the bits of sqrt(1/2) makes the exponent field count from there.
    const std::uint32_t root_half = 0x3F3504F3u;
    const std::uint32_t from_root = float_bits(normal) - root_half;
    const int exponent = (static_cast<int>(from_root) >> 23) - (subnormal ? 23 : 0);
    const float e = static_cast<float>(exponent);
    const float f = float_from_bits((from_root & 0x007FFFFFu) + root_half) - 1.0f;

    // log(1 + f) = f - (f^2/2 - s * (f^2/2 + tail)),  s = f / (2 + f),  tail = 2/3 s^2 + 2/5 s^4 + ...
    const float s = f / (2.0f + f);
    const float z = s * s;
    float tail = 2.0f / 11;
    tail = fmaf(tail, z, 2.0f / 9);
    tail = fmaf(tail, z, 2.0f / 7);
    tail = fmaf(tail, z, 2.0f / 5);
    tail = fmaf(tail, z, 2.0f / 3);
    tail = tail * z;
    const float square = 0.5f * f * f;
    const float high = 0x1.62e4p-1f, low = 0x1.7f7d1cp-20f;  // e * high is exact
    const float small = fmaf(s, square + tail, e * low) - square;
    float y = fmaf(e, high, f + small);

    y = x == 0.0f ? -HUGE_VALF : y;
    y = x < 0.0f ? float_from_bits(0x7FC00000u) : y;
    return x < HUGE_VALF ? y : x;  // +inf and NaN are their own logarithm
}

// 1 / (1 + e^-x), from e^-|x| so that neither side overflows or loses its small values.
QUADS_HOST_DEVICE inline float exact_sigmoid(float x) {
    const float e = exact_exp(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// x * sigmoid(x), -0 at -inf.
QUADS_HOST_DEVICE inline float exact_silu(float x) { return x == -HUGE_VALF ? -0.0f : x * exact_sigmoid(x); }

// 1 / sqrt(x), two correctly rounded operations.
QUADS_HOST_DEVICE inline float exact_rsqrt(float x) { return 1.0f / sqrtf(x); }

}  // namespace quads
