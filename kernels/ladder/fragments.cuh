// What the tensor-core rungs share: E2M1 codes as FP16 operands, and the one instruction.
//
// FP16 whose exponent and mantissa bits 9..11 are the three magnitude bits of an E2M1 code is exactly q * 2^-14, also
// for 0.5, which becomes an FP16 subnormal: decoding is moving bits. Tensor cores and FP16 multiplies keep subnormals.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "reference/codec.hpp"
#include "reference/nvfp4.hpp"

namespace quads::kernels::ladder {

constexpr std::uint32_t kSigns = 0x80008000u, kMagnitudes = 0x0E000E00u;  // of two FP16 numbers
constexpr float kUndoShift = 268435456.0f;                                // 2^28: two operands of q * 2^-14

// Two FP16 numbers q * 2^-14 from the nibbles i and i + 4 of eight codes.
template <int i>
__device__ inline std::uint32_t codes_to_half2(std::uint32_t codes) {
    const std::uint32_t magnitudes = i < 3 ? codes << (i < 3 ? 9 - 4 * i : 0) : codes >> 3;
    return ((codes << (12 - 4 * i)) & kSigns) | (magnitudes & kMagnitudes);
}

// Four codes (16 bits, lowest nibble first) as two registers: {codes 0 and 2}, {codes 1 and 3}. Tensor cores sum over
// k, so any order of the k's will do as long as both operands use the same.
__device__ inline void four_codes_to_half2(std::uint32_t codes, std::uint32_t& even, std::uint32_t& odd) {
    const std::uint32_t spread = (codes & 0xFFu) | ((codes & 0xFF00u) << 8);
    even = codes_to_half2<0>(spread);
    odd = codes_to_half2<1>(spread);
}

// Two E4M3 bytes as two FP16 numbers, exact.
__device__ inline __half2 scales_to_half2(std::uint16_t bytes) {
    return __half2(__nv_cvt_fp8x2_to_halfraw2(bytes, __NV_E4M3));
}

__device__ inline std::uint32_t multiply_half2(std::uint32_t a, __half2 b) {
    const __half2 product = __hmul2(reinterpret_cast<const __half2&>(a), b);
    return reinterpret_cast<const std::uint32_t&>(product);
}

// d = a * b on 16 x 16 by 16 x 8 FP16 operands, C = 0. With g = lane / 4 and t = lane % 4, d[0..1] lie in row g,
// columns 2t and 2t + 1, d[2..3] in row g + 8; a[0], a[2] belong to row g, a[1], a[3] to row g + 8; b to column g.
__device__ inline void mma_16x8x16(const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], float (&d)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

// Prepacked weights: 16 bits hold four codes c0..c3 such that two of them come out with one AND and no second shift:
//   bits 15, 11:9   sign and magnitude of c0      bit 14, bits 5:3   of c2, combined by xor with bits 9 and 10:8
//   bits 12,  8:6   sign and magnitude of c1      bit 13, bits 2:0   of c3, combined by xor with bits 6 and  9:7
// The xor undoes what the other fields put under the mask when c2 and c3 are extracted: 9 instructions for 8 codes,
// not 15.
__host__ __device__ inline std::uint32_t encode_fragment(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                                         std::uint32_t c3) {
    const std::uint32_t first = (c0 & 8) << 12 | (c0 & 7) << 9 | (c1 & 8) << 9 | (c1 & 7) << 6;
    const std::uint32_t sign2 = (c2 >> 3 ^ first >> 9) & 1, magnitude2 = (c2 ^ first >> 8) & 7;
    const std::uint32_t sign3 = (c3 >> 3 ^ first >> 6) & 1, magnitude3 = (c3 ^ first >> 7) & 7;
    return first | sign2 << 14 | magnitude2 << 3 | sign3 << 13 | magnitude3;
}

__device__ inline void decode_fragment(std::uint32_t word, std::uint32_t (&a)[4]) {
    constexpr std::uint32_t mask = kSigns | kMagnitudes;
    a[0] = word & mask;
    a[1] = (word << 3) & mask;
    a[2] = ((word << 6) ^ (word << 1)) & mask;
    a[3] = ((word << 9) ^ (word << 2)) & mask;
}

}  // namespace quads::kernels::ladder
