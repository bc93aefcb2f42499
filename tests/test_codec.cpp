#include "reference/codec.hpp"

#include <cmath>
#include <limits>

#include "tests/arrays.hpp"
#include "tests/compare.hpp"
#include "tests/literal_codec.hpp"
#include "tests/vectors/codec.hpp"

// NVIDIA's own conversions run on the host under any C++ compiler: where the toolkit is, they judge ours.
#if __has_include(<cuda_fp4.h>)
#define HAVE_CUDA_HEADERS
#include <cuda_bf16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#elif __has_include("/usr/local/cuda/include/cuda_fp4.h")
#define HAVE_CUDA_HEADERS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "/usr/local/cuda/include/cuda_bf16.h"
#include "/usr/local/cuda/include/cuda_fp4.h"
#include "/usr/local/cuda/include/cuda_fp8.h"
#pragma GCC diagnostic pop
#endif

using namespace quads;

namespace {

float next_up(float x) { return std::nextafter(x, INFINITY); }
float next_down(float x) { return std::nextafter(x, -INFINITY); }

// BF16 by double arithmetic for finite x: the nearest multiple of the unit, ties to even, overflowing to infinity.
std::uint32_t literal_bf16(float x) {
    const int exponent = std::fabs(x) < 0x1p-126f ? -126 : std::ilogb(x);
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(x), 7 - exponent)), exponent - 7);
    const float value = std::fabs(rounded) >= 0x1p128 ? std::copysign(INFINITY, x) : static_cast<float>(rounded);
    return float_bits(value) >> 16;
}

// Number of ways in which the codecs disagree with the definitions at this bit pattern.
int disagreements(std::uint32_t bits) {
    const float x = float_from_bits(bits);
    int wrong = (e2m1_encode(x) != literal::e2m1_encode(x)) + (e4m3_encode(x) != literal::e4m3_encode(x));
    wrong += float_bits(bf16_round(x)) != static_cast<std::uint32_t>(bf16_bits(x)) << 16;
    if (std::isfinite(x)) return wrong + (bf16_bits(x) != literal_bf16(x));
    if (std::isinf(x)) return wrong + (bf16_bits(x) != bits >> 16);
    return wrong + !(std::isnan(bf16_from_bits(bf16_bits(x))) && (bf16_bits(x) & 0x40) != 0);
}

#ifdef HAVE_CUDA_HEADERS
int disagreements_with_cuda(std::uint32_t bits) {
    const float x = float_from_bits(bits);
    int wrong = e2m1_encode(x) != __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest);
    wrong += e4m3_encode(x) != __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    if (std::isnan(x)) return wrong;
    const __nv_bfloat16 half = __float2bfloat16_rn(x);
    std::uint16_t half_bits;
    std::memcpy(&half_bits, &half, sizeof half_bits);
    return wrong + (bf16_bits(x) != half_bits);
}
#endif

}  // namespace

TEST_CASE("codec: the 16 codes of E2M1 and their doubled integers", "[codec]") {
    const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                              -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    for (int code = 0; code < 16; ++code) {
        REQUIRE(float_bits(e2m1_decode(code)) == float_bits(values[code]));
        REQUIRE(e2m1_encode(values[code]) == code);
        REQUIRE(e2m1_doubled(code) == static_cast<int>(2 * values[code]));
    }
}

TEST_CASE("codec: E2M1 ties go to the even code, their neighbours to the nearest", "[codec]") {
    const struct { float tie; int below, at, above; } rows[] = {
        {0.25f, 0, 0, 1}, {0.75f, 1, 2, 2}, {1.25f, 2, 2, 3}, {1.75f, 3, 4, 4},
        {2.5f, 4, 4, 5},  {3.5f, 5, 6, 6},  {5.0f, 6, 6, 7},
    };
    for (const auto& row : rows) {
        REQUIRE(e2m1_encode(next_down(row.tie)) == row.below);
        REQUIRE(e2m1_encode(row.tie) == row.at);
        REQUIRE(e2m1_encode(next_up(row.tie)) == row.above);
        REQUIRE(e2m1_encode(-row.tie) == (row.at | 8));
    }
}

TEST_CASE("codec: E2M1 of values that are no numbers of the format", "[codec]") {
    REQUIRE(e2m1_encode(1e30f) == 7);
    REQUIRE(e2m1_encode(INFINITY) == 7);
    REQUIRE(e2m1_encode(-INFINITY) == 15);
    REQUIRE(e2m1_encode(NAN) == 7);
    REQUIRE(e2m1_encode(-NAN) == 7);
    REQUIRE(e2m1_encode(-0.0f) == 8);
    REQUIRE(e2m1_encode(-1e-45f) == 8);
}

TEST_CASE("codec: the 256 codes of E4M3 decode by their definition and encode back", "[codec]") {
    for (int code = 0; code < 256; ++code) {
        if ((code & 0x7F) == 0x7F) {
            REQUIRE(std::isnan(e4m3_decode(code)));
            continue;
        }
        REQUIRE(float_bits(e4m3_decode(code)) == float_bits(literal::e4m3_decode(code)));
        REQUIRE(e4m3_encode(e4m3_decode(code)) == code);
    }
    REQUIRE(e4m3_decode(0x7E) == 448.0f);
    REQUIRE(e4m3_decode(0x08) == 0x1p-6f);
    REQUIRE(e4m3_decode(0x01) == 0x1p-9f);
}

TEST_CASE("codec: between two E4M3 codes the midpoint goes to the even one", "[codec]") {
    for (int code = 0; code < 0x7E; ++code) {
        const float middle = 0.5f * (e4m3_decode(code) + e4m3_decode(code + 1));
        REQUIRE(e4m3_encode(next_down(middle)) == code);
        REQUIRE(e4m3_encode(middle) == code + code % 2);
        REQUIRE(e4m3_encode(next_up(middle)) == code + 1);
        REQUIRE(e4m3_encode(-middle) == ((code + code % 2) | 0x80));
    }
    for (const float large : {448.0f, 464.0f, 465.0f, 1e30f, INFINITY}) {
        REQUIRE(e4m3_encode(large) == 0x7E);
        REQUIRE(e4m3_encode(-large) == 0xFE);
    }
    REQUIRE(e4m3_encode(NAN) == 0x7F);
    REQUIRE(e4m3_encode(-NAN) == 0x7F);
    REQUIRE(e4m3_encode(-0.0f) == 0x80);
}

TEST_CASE("codec: all 65536 BF16 patterns survive, midpoints go to the even one", "[codec]") {
    int wrong = 0;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float x = bf16_from_bits(static_cast<std::uint16_t>(bits));
        if (std::isnan(x)) {
            wrong += bf16_bits(x) != (bits | 0x40);
            continue;
        }
        wrong += bf16_bits(x) != bits;
        if (std::isinf(x)) continue;
        const std::uint32_t middle = bits << 16 | 0x8000;
        wrong += bf16_bits(float_from_bits(middle - 1)) != bits;
        wrong += bf16_bits(float_from_bits(middle)) != bits + bits % 2;
        wrong += bf16_bits(float_from_bits(middle + 1)) != bits + 1;
    }
    REQUIRE(wrong == 0);
}

TEST_CASE("codec: every 1021st float agrees with the definitions", "[codec]") {
    long wrong = 0;
    for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 1021) {
        wrong += disagreements(static_cast<std::uint32_t>(bits));
    }
    REQUIRE(wrong == 0);
}

TEST_CASE("codec: all 2^32 floats agree with the definitions", "[codec][.slow]") {
    long wrong = 0;
    for (std::uint64_t bits = 0; bits < 1ull << 32; ++bits) wrong += disagreements(static_cast<std::uint32_t>(bits));
    REQUIRE(wrong == 0);
}

TEST_CASE("codec: agrees with recorded results of NVIDIA's conversions", "[codec]") {
    for (const CodecVector& row : kCodecVectors) {
        CAPTURE(row.bits);
        REQUIRE(e2m1_encode(float_from_bits(row.bits)) == row.e2m1);
        REQUIRE(e4m3_encode(float_from_bits(row.bits)) == row.e4m3);
    }
}

#ifdef HAVE_CUDA_HEADERS
TEST_CASE("codec: every 257th float agrees with CUDA's headers", "[codec]") {
    long wrong = 0;
    for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 257) {
        wrong += disagreements_with_cuda(static_cast<std::uint32_t>(bits));
    }
    REQUIRE(wrong == 0);
}

TEST_CASE("codec: all 2^32 floats agree with CUDA's headers", "[codec][.slow]") {
    long wrong = 0;
    for (std::uint64_t bits = 0; bits < 1ull << 32; ++bits) {
        wrong += disagreements_with_cuda(static_cast<std::uint32_t>(bits));
    }
    REQUIRE(wrong == 0);
}

TEST_CASE("codec: the recorded vectors are what CUDA's headers give", "[codec]") {
    for (const CodecVector& row : kCodecVectors) {
        const float x = float_from_bits(row.bits);
        REQUIRE(row.e2m1 == __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest));
        REQUIRE(row.e4m3 == __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
    }
}
#endif

TEST_CASE("codec: the even column lies in the low nibble", "[codec]") {
    const std::uint8_t row[2] = {pack_codes(0x3, 0xA), pack_codes(0xF, 0x0)};
    REQUIRE(row[0] == 0xA3);
    const int expected[4] = {0x3, 0xA, 0xF, 0x0};
    for (int k = 0; k < 4; ++k) REQUIRE(code_at(row, k) == expected[k]);
}
