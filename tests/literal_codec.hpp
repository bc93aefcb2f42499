// The formats once more, by their definitions and in double: slow, obvious, sharing nothing with the code they test.
#pragma once

#include <cmath>
#include <cstdint>

namespace literal {

constexpr double kE2m1[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};

// Nearest of the eight magnitudes, a tie to the even code, saturating at 6; NaN to +6.
inline std::uint8_t e2m1_encode(float x) {
    if (std::isnan(x)) return 7;
    const double magnitude = std::fmin(std::fabs(static_cast<double>(x)), 6.0);
    int best = 0;
    for (int code = 1; code < 8; ++code) {
        const double old_error = std::fabs(magnitude - kE2m1[best]), error = std::fabs(magnitude - kE2m1[code]);
        if (error < old_error || (error == old_error && code % 2 == 0)) best = code;
    }
    return static_cast<std::uint8_t>(best + (std::signbit(x) ? 8 : 0));
}

inline float e2m1_decode(int code) {
    const double magnitude = kE2m1[code & 7];
    return static_cast<float>((code & 8) != 0 ? -magnitude : magnitude);
}

inline float e4m3_decode(int code) {
    const int exponent = (code >> 3) & 15, mantissa = code & 7;
    double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    if ((code & 0x7F) == 0x7F) magnitude = NAN;
    return static_cast<float>((code & 0x80) != 0 ? -magnitude : magnitude);
}

// Nearest multiple of the unit in the last place, ties to even by nearbyint; saturates at 448; NaN to 0x7F.
inline std::uint8_t e4m3_encode(float x) {
    if (std::isnan(x)) return 0x7F;
    const double magnitude = std::fabs(static_cast<double>(x));
    const int sign = std::signbit(x) ? 0x80 : 0;
    if (magnitude > 448.0) return static_cast<std::uint8_t>(0x7E | sign);
    const int exponent = magnitude < 0x1p-6 ? -6 : std::ilogb(magnitude);
    const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));  // 8 .. 16 if normal
    return static_cast<std::uint8_t>(((exponent + 6) * 8 + steps) | sign);
}

}  // namespace literal
