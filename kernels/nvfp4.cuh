// The quantiser's inner part, shared by the main pass, the residual pass and the count of code flips: one warp per row,
// one lane per column, so 16 neighbouring lanes hold a scale block. Formulas: reference/nvfp4.hpp.
#pragma once

#include <cfloat>

#include "kernels/amax.cuh"
#include "reference/nvfp4.hpp"

namespace quads::kernels {

// The two outer scales of a row or group with the given amax: Se and g.
struct Outer {
    float encode, decode;
};

__device__ inline Outer outer_of(float amax) {
    const float encode = amax == 0.0f ? 1.0f : fminf(2688.0f / amax, FLT_MAX);
    return {encode, 1.0f / encode};
}

// Code of this lane's column and scale of its block. The whole warp calls it, lanes beyond the row with x = 0.
__device__ inline std::uint8_t encode_column(float x, Outer outer, std::uint8_t* scale) {
    float amax = fabsf(x);
    for (int distance = kBlock / 2; distance > 0; distance /= 2) {
        amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, distance));
    }
    *scale = e4m3_encode(amax * (outer.encode * (1.0f / 6.0f)));
    if (*scale == 0) return 0;
    return e2m1_encode(x * fminf(1.0f / (e4m3_decode(*scale) * outer.decode), FLT_MAX));
}

// Quantises one row, padding included: value(k) is called for 0 <= k < K by lane k % 32.
template <typename Value>
__device__ void quantize_row(Value value, int K, Outer outer, std::uint8_t* codes, std::uint8_t* scales) {
    const int padded = blocks_of(K) * kBlock;
    for (int first = 0; first < padded; first += kWarp) {
        const int k = first + lane_id();
        std::uint8_t scale;
        const std::uint8_t code = encode_column(k < K ? value(k) : 0.0f, outer, &scale);
        const std::uint8_t neighbour = static_cast<std::uint8_t>(__shfl_down_sync(kAllLanes, code, 1));
        if (k < padded && k % 2 == 0) codes[k / 2] = pack_codes(code, neighbour);
        if (k < padded && k % kBlock == 0) scales[k / kBlock] = scale;
    }
}

}  // namespace quads::kernels
