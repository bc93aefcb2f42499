// The tuned quantisers' inner part: a lane holds whole scale blocks of 16 columns.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>

#include "kernels/nvfp4.cuh"
#include "kernels/warp.cuh"

namespace quads::kernels::ladder {

// E2M1 numbers are kept times 2^-6: their smallest powers of two are then those of E4M3, so that the hardware's
// conversion to E4M3 gives bytes of a sign, two bits of 0, the other three bits of the E2M1 code, and two bits of 0.
constexpr float kUnit = 0x1p-6f;

// The E2M1 number nearest to y, both times kUnit; ties to even, the sign of zeros kept; |y| < 7 kUnit. E2M1 numbers lie
// 2^(e-1) apart where 2^e <= |y| < 2^(e+1), and below 1 as far as from 1 to 2. Adding 1.5 * 2^(e+22) rounds y to a
// multiple of that distance.
__device__ inline float round_e2m1(float y) {
    const float power = float_from_bits(float_bits(fmaxf(fabsf(y), kUnit)) & 0x7F800000u);  // 2^e
    const float sum = __fmaf_rn(power, 0x1.8p22f, y);
    return copysignf(__fmaf_rn(power, -0x1.8p22f, sum), y);
}

// Codes of eight E2M1 numbers, lowest nibble first.
__device__ inline std::uint32_t pack_eight(const float* q) {
    std::uint32_t half[2];  // bytes of even and of odd columns
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const std::uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(q[i], q[i + 2]), __NV_SATFINITE, __NV_E4M3),
                            high = __nv_cvt_float2_to_fp8x2(make_float2(q[i + 4], q[i + 6]), __NV_SATFINITE, __NV_E4M3);
        half[i] = low | high << 16;
    }
    return (half[0] >> 4 & 0x08080808u) | (half[0] >> 2 & 0x07070707u) | (half[1] & 0x80808080u) |
           (half[1] << 2 & 0x70707070u);
}

// Columns k .. k + 15 of a row of K, zeros beyond its end; K % 4 == 0, so that rows start at multiples of 16 bytes.
__device__ inline void load_aligned_block(const float* row, int k, int K, float (&value)[kBlock]) {
#pragma unroll
    for (int i = 0; i < kBlock; i += 4) {
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (k + i < K) four = *reinterpret_cast<const float4*>(row + k + i);
        value[i] = four.x, value[i + 1] = four.y, value[i + 2] = four.z, value[i + 3] = four.w;
    }
}

// The same for any K.
__device__ inline void load_block(const float* row, int k, int K, float (&value)[kBlock]) {
    if (K % 4 == 0) return load_aligned_block(row, k, K, value);
#pragma unroll
    for (int i = 0; i < kBlock; ++i) value[i] = k + i < K ? row[k + i] : 0.0f;
}

__device__ inline float amax_of_block(const float (&value)[kBlock]) {
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) amax = fmaxf(amax, fabsf(value[i]));
    return amax;
}

struct BlockCodes {
    uint2 codes;  // lowest nibble first
    std::uint8_t scale;
};

// Quantises a block whose largest magnitude is amax. lost, unless nullptr, gets x - (q * s) * g of each; it may be
// `value`.
__device__ inline BlockCodes encode_block(const float (&value)[kBlock], float amax, Outer outer,
                                          float* lost = nullptr) {
    const std::uint8_t scale = __nv_cvt_float_to_fp8(amax * (outer.encode * (1.0f / 6.0f)), __NV_SATFINITE, __NV_E4M3);
    const float decoded = __half2float(__half(__nv_cvt_fp8_to_halfraw(scale, __NV_E4M3)));
    const float inverse = fminf(__frcp_rn(decoded * outer.decode), FLT_MAX), in_units = inverse * kUnit;
    float q[kBlock];
#pragma unroll
    for (int i = 0; i < kBlock; ++i) q[i] = value[i] * in_units;
    // Rare: a scale so small that it was rounded by far, or numbers so large that in_units is inexact.
    if (amax * in_units >= 7.0f * kUnit || in_units < FLT_MIN) {
#pragma unroll
        for (int i = 0; i < kBlock; ++i) q[i] = fminf(fmaxf(value[i] * inverse, -6.0f), 6.0f) * kUnit;
    }
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
        q[i] = round_e2m1(q[i]);
        // With a scale of 0 the codes become 0, and what rounded to them is lost as a whole: q * 0 is 0.
        if (lost != nullptr) lost[i] = value[i] - (q[i] * (decoded / kUnit)) * outer.decode;
    }
    return {scale == 0 ? make_uint2(0, 0) : make_uint2(pack_eight(q), pack_eight(q + 8)), scale};
}

// Maximum over the thread block of kWarps warps; every thread gets it.
template <int kWarps>
__device__ float row_max(float x) {
    x = warp_max(x);
    if constexpr (kWarps > 1) {
        __shared__ float of_warp[kWarps];
        if (lane_id() == 0) of_warp[threadIdx.x / kWarp] = x;
        __syncthreads();
        for (int i = 0; i < kWarps; ++i) x = fmaxf(x, of_warp[i]);
    }
    return x;
}

// Where a thread writes its codes and scales: those of its block i lie i * kThreads blocks after the first.
template <int kThreads>
struct Target {
    uint2* codes;
    std::uint8_t* scales;

    __device__ Target(Nvfp4 out, int m, int K)
        : codes(reinterpret_cast<uint2*>(out.codes) + static_cast<std::int64_t>(m) * blocks_of(K) + threadIdx.x),
          scales(out.scales + static_cast<std::int64_t>(m) * blocks_of(K) + threadIdx.x) {}

    __device__ void store(int i, int K, const BlockCodes& block) const {
        if (i * kThreads + static_cast<int>(threadIdx.x) >= blocks_of(K)) return;
        codes[i * kThreads] = block.codes;
        scales[i * kThreads] = block.scale;
    }
};

}  // namespace quads::kernels::ladder
