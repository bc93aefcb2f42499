// The tuned quantisers' inner part: a thread holds eight neighbouring columns, two neighbouring lanes a scale block.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>

#include "kernels/nvfp4.cuh"
#include "kernels/warp.cuh"

namespace quads::kernels::ladder {

constexpr int kRowThreads = 128;                    // threads of one row
constexpr int kPerThread = 8;                       // columns of a thread at a time
constexpr int kRowStep = kRowThreads * kPerThread;  // columns of all threads at a time

// A number rounded to E2M1: its code, and the value of the code.
struct RoundedE2m1 {
    std::uint32_t code;
    float value;
};

// e2m1_encode and e2m1_decode for numbers that are not NaN, in half the instructions. Adding 1.5 * 2^(e+22) to
// 2^e <= a < 2^(e+1) rounds a to a multiple of 2^(e-1), the distance of E2M1 values there, and the low bits of the sum
// are that multiple: ties go to even. Below 2 the distance is 0.5 throughout.
QUADS_HOST_DEVICE inline RoundedE2m1 round_e2m1(float x) {
    const std::uint32_t bits = float_bits(x), magnitude = bits & 0x7FFFFFFFu;
    const std::uint32_t a = magnitude < 0x40C00000u ? magnitude : 0x40C00000u;  // 6
    const std::uint32_t exponent = (a > 0x3F800000u ? a : 0x3F800000u) & 0x7F800000u;
    const std::uint32_t magic = exponent + ((22u << 23) | 0x400000u);
    const float sum = float_from_bits(a) + float_from_bits(magic);
    const float rounded = sum - float_from_bits(magic);
    // Two more codes lie below for each power of two from 2 on.
    const std::uint32_t code = float_bits(sum) - magic + (exponent >> 22) - 254u;
    return {(bits >> 28 & 8u) | code, float_from_bits(float_bits(rounded) | (bits & 0x80000000u))};
}

// Columns k .. k + 7 of a row of K, zeros beyond its end.
__device__ inline void load_eight(const float* row, int k, int K, float (&value)[kPerThread]) {
    if (K % 4 == 0 && k + kPerThread <= K) {  // rows then start at multiples of 16 bytes
        const float4 low = *reinterpret_cast<const float4*>(row + k),
                     high = *reinterpret_cast<const float4*>(row + k + 4);
        value[0] = low.x, value[1] = low.y, value[2] = low.z, value[3] = low.w;
        value[4] = high.x, value[5] = high.y, value[6] = high.z, value[7] = high.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) value[i] = k + i < K ? row[k + i] : 0.0f;
}

__device__ inline float amax_of_eight(const float (&value)[kPerThread]) {
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) amax = fmaxf(amax, fabsf(value[i]));
    return amax;
}

// Eight codes, lowest nibble first, and the scale of their block.
struct EightCodes {
    std::uint32_t codes;
    std::uint8_t scale;
};

// Quantises eight columns; the whole warp calls it. lost, unless nullptr, gets x - (q * s) * g of each; it may be
// `value`.
__device__ inline EightCodes encode_eight(const float (&value)[kPerThread], Outer outer, float* lost = nullptr) {
    float amax = amax_of_eight(value);
    amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, 1));
    const std::uint8_t scale = __nv_cvt_float_to_fp8(amax * (outer.encode * (1.0f / 6.0f)), __NV_SATFINITE, __NV_E4M3);
    const float decoded = __half2float(__half(__nv_cvt_fp8_to_halfraw(scale, __NV_E4M3)));
    const float inverse = fminf(__frcp_rn(decoded * outer.decode), FLT_MAX);
    std::uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
        const RoundedE2m1 rounded = round_e2m1(value[i] * inverse);
        codes |= rounded.code << (4 * i);
        // With a scale of 0 the codes become 0, and what rounded to them is lost as a whole: q * 0 is 0.
        if (lost != nullptr) lost[i] = value[i] - (rounded.value * decoded) * outer.decode;
    }
    return {scale == 0 ? 0u : codes, scale};
}

// Maximum over the thread block of kRowThreads; every thread gets it.
__device__ inline float row_max(float x) {
    __shared__ float of_warp[kRowThreads / kWarp];
    x = warp_max(x);
    if (lane_id() == 0) of_warp[threadIdx.x / kWarp] = x;
    __syncthreads();
    for (int i = 0; i < kRowThreads / kWarp; ++i) x = fmaxf(x, of_warp[i]);
    return x;
}

// Writes what encode_eight made of columns k .. k + 7 of a row with `blocks` scale blocks; pairs of lanes share a
// block.
__device__ inline void store_eight(const EightCodes& eight, int k, int blocks, std::uint8_t* codes,
                                   std::uint8_t* scales) {
    if (k >= blocks * kBlock) return;
    reinterpret_cast<std::uint32_t*>(codes)[k / kPerThread] = eight.codes;
    if (k % kBlock == 0) scales[k / kBlock] = eight.scale;
}

}  // namespace quads::kernels::ladder
