// Scalar codecs: BF16, E2M1 (FP4) and E4M3 (FP8), and the nibbles that hold E2M1 codes.
//
//   format  sign exponent mantissa  bias  largest  smallest  special values
//   BF16     1      8        7      127   3.4e38   2^-133    as FP32
//   E4M3     1      4        3        7   448      2^-9      NaN 0x7F and 0xFF, no infinity
//   E2M1     1      2        1        1   6        0.5       none
//
// Every encoder rounds to nearest, ties to even. All are integer work on bit patterns without branches or tables,
// so that a compiler vectorises loops over them and a GPU runs the same text. Formats: OCP Microscaling Formats v1.0.
#pragma once

#include <cstdint>
#include <cstring>

#include "reference/dims.hpp"

namespace quads {

QUADS_HOST_DEVICE inline std::uint32_t float_bits(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

QUADS_HOST_DEVICE inline float float_from_bits(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

constexpr std::uint32_t kInfinityBits = 0x7F800000u;  // magnitudes above it are NaN

// BF16 is the upper half of FP32: adding just under half of the dropped part, plus one if the kept part is odd, carries
// into it exactly when the value must round up. NaN stays NaN: its quiet bit is set, whatever the dropped bits were.
QUADS_HOST_DEVICE inline std::uint16_t bf16_bits(float x) {
    const std::uint32_t bits = float_bits(x);
    const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
    return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > kInfinityBits ? quiet_nan : rounded);
}

QUADS_HOST_DEVICE inline float bf16_from_bits(std::uint16_t bits) {
    return float_from_bits(static_cast<std::uint32_t>(bits) << 16);
}

QUADS_HOST_DEVICE inline float bf16_round(float x) {
    const std::uint32_t bits = float_bits(x);
    const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
    const std::uint32_t quiet_nan = (bits | 0x400000u) & 0xFFFF0000u;
    return float_from_bits((bits & 0x7FFFFFFFu) > kInfinityBits ? quiet_nan : rounded);
}

// E2M1 code of x, 0 .. 15: saturates at 6, keeps the sign of zero, NaN becomes +6 as on hardware. The magnitude is the
// number of rounding thresholds below |x|; a tie goes to the even code, hence > and >= in turn. Positive floats compare
// as their bit patterns do.
QUADS_HOST_DEVICE inline std::uint8_t e2m1_encode(float x) {
    const std::uint32_t bits = float_bits(x);
    const std::int32_t a = static_cast<std::int32_t>(bits & 0x7FFFFFFFu);  // signed: what vector units compare fastest
    const std::uint32_t magnitude = (a > 0x3E800000)     // 0.25
                                    + (a >= 0x3F400000)  // 0.75
                                    + (a > 0x3FA00000)   // 1.25
                                    + (a >= 0x3FE00000)  // 1.75
                                    + (a > 0x40200000)   // 2.5
                                    + (a >= 0x40600000)  // 3.5
                                    + (a > 0x40A00000);  // 5
    const std::uint32_t sign = a > 0x7F800000 ? 0u : (bits >> 31) << 3;
    return static_cast<std::uint8_t>(sign | magnitude);
}

// Value of an E2M1 code; the upper four bits of `code` are ignored.
QUADS_HOST_DEVICE inline float e2m1_decode(std::uint8_t code) {
    const std::uint32_t magnitude = code & 7u;
    // 0 and 0.5 are subnormal; from code 2 on, the three bits are exponent and mantissa of a float with another bias.
    const std::uint32_t bits = magnitude < 2u ? magnitude * 0x3F000000u : (magnitude << 22) + (126u << 23);
    return float_from_bits(bits | (static_cast<std::uint32_t>(code & 8u) << 28));
}

// Twice the value of an E2M1 code: an integer of at most 12, so that block dots can be summed exactly as integers.
QUADS_HOST_DEVICE inline int e2m1_doubled(std::uint8_t code) {
    const int magnitude = static_cast<int>((0xC8643210u >> (4 * (code & 7u))) & 15u);
    return (code & 8u) != 0 ? -magnitude : magnitude;
}

// E4M3 code of x: saturates at 448 (0x7E), keeps the sign of zero, any NaN becomes 0x7F as on hardware.
QUADS_HOST_DEVICE inline std::uint8_t e4m3_encode(float x) {
    const std::uint32_t bits = float_bits(x);
    const std::uint32_t a = bits & 0x7FFFFFFFu;
    // Normal: round the mantissa to 3 bits, then exchange FP32's bias for 7.
    const std::uint32_t normal = ((a + 0x7FFFFu + ((a >> 20) & 1u)) >> 20) - ((127u - 7u) << 3);
    // Below 2^-6 codes are multiples of 2^-9, which is one unit in the last place of 2^14: the addition rounds.
    const std::uint32_t subnormal = float_bits(float_from_bits(a) + 16384.0f) - 0x46800000u;
    const std::uint32_t finite = a < 0x3C800000u ? subnormal : normal;
    const std::uint32_t saturated = finite > 0x7Eu ? 0x7Eu : finite;
    const std::uint32_t code = saturated | ((bits >> 31) << 7);
    return static_cast<std::uint8_t>(a > kInfinityBits ? 0x7Fu : code);
}

QUADS_HOST_DEVICE inline float e4m3_decode(std::uint8_t code) {
    const std::uint32_t a = code & 0x7Fu;
    const std::uint32_t normal = (a << 20) + ((127u - 7u) << 23);
    const std::uint32_t subnormal = float_bits(static_cast<float>(static_cast<int>(a)) * 0x1p-9f);
    const std::uint32_t finite = a < 8u ? subnormal : normal;
    const std::uint32_t bits = a == 0x7Fu ? 0x7FC00000u : finite;
    return float_from_bits(bits | (static_cast<std::uint32_t>(code & 0x80u) << 24));
}

// Two E2M1 codes in one byte: the even column in the low nibble.
QUADS_HOST_DEVICE inline std::uint8_t pack_codes(std::uint8_t even, std::uint8_t odd) {
    return static_cast<std::uint8_t>(even | (odd << 4));
}

// Code of column k of a packed row.
QUADS_HOST_DEVICE inline std::uint8_t code_at(const std::uint8_t* row, int k) {
    return static_cast<std::uint8_t>((row[k / 2] >> (4 * (k & 1))) & 15);
}

}  // namespace quads
