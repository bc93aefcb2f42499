// NVFP4: quantise, dequantise, and the residual of residual activation compensation (RAC).
//
// A tensor of M rows and K columns is stored as
//   codes   M x code_bytes_of(K) bytes   two E2M1 codes a byte, even column in the low nibble
//   scales  M x blocks_of(K) bytes       one E4M3 scale per 16 consecutive columns
//   outer   M or E floats                one FP32 outer scale g per row or per group of rows
// and a value is (q * s) * g. Columns K .. 16 * blocks_of(K) - 1 are padding: code 0, and they never raise an amax.
//
// Quantise, all in FP32 and in this order (a: amax of the block, ga: amax of the row or group):
//   Se   = min(2688 / ga, FLT_MAX), or 1 if ga = 0     2688 = 6 * 448, the largest q * s
//   g    = 1 / Se
//   s    = E4M3(a * (Se * fl(1/6)))
//   inv  = min(1 / (s * g), FLT_MAX)                   from the rounded scale; a block with s = 0 gets codes 0
//   code = E2M1(clamp(x * inv, -6, 6))
// The order is that of TransformerEngine's NVFP4 reference; other orders round differently in rare inputs only.
#pragma once

#include <cstdint>

#include "reference/dims.hpp"

namespace quads {

// Which rows share an outer scale.
enum class OuterScale {
    row,    // one per row (activations, "per token")
    group,  // one per group of rows (weights: one per matrix; activations: "per tensor")
};

// Which channels RAC compensates.
enum class ResidualSelection {
    batch,  // the same channels for all rows of a group: largest norm of the residual over those rows
    token,  // each row its own channels: largest absolute residual
    random, // each row channels chosen by Philox, independent of the data: the control experiment
};

// Channels that RAC keeps: ratio * K rounded up, the product rounded to FP32 first (so that 0.1 * 10 is 1, not 2).
QUADS_HOST_DEVICE inline int residual_channels(float ratio, int K) {
    const float product = ratio * static_cast<float>(K);
    const int floor = static_cast<int>(product);
    return floor + (static_cast<float>(floor) < product ? 1 : 0);
}

// View of a packed tensor, layout as above.
struct Nvfp4 {
    std::uint8_t* codes;
    std::uint8_t* scales;
    float* outer;
    OuterScale outer_scale;
};

namespace reference {

// Quantises x into `out`, every byte of which is written, padding included.
// Throws Error that names row and column if x holds NaN or Inf, or if K < 1; then nothing is written.
void quantize_nvfp4(const float* x,  // (M, K)
                    Groups groups,   // of the M rows; matters only for OuterScale::group
                    int M, int K,
                    Nvfp4 out);      // out.outer: (M) or (E), by out.outer_scale

// x = (q * s) * g, or only q * s (exact in BF16) where with_outer is false.
void dequantize_nvfp4(Nvfp4 q,       // (M, K) packed
                      Groups groups, // of the M rows
                      int M, int K,
                      bool with_outer,
                      float* x);     // (M, K)

// The second pass of RAC. With t = (q * s) * g of the main pass and r = RN(x - t):
//   residual_channels(ratio, K) channels of every row are kept, the others set to +0:
//     batch   the largest sums over the group's rows of r * r (ascending rows, FP32 fma); equal sums: lower channel
//     token   the largest |r| of the row; equal: lower channel
//     random  the largest first Philox word of counter (row, channel, 0, 0), key (0x52414344, 0); equal: lower channel
//   r is then quantised as above with the row's SAME outer scale (Se is recomputed, as 1 / g is not exact: the amax of
//   the main pass decides Se and g) and its own block scales.
// A channel norm that overflows to Inf compares as any other number. Throws Error unless 0 <= ratio <= 1.
void quantize_nvfp4_residual(const float* x,      // (M, K), the array that `main` was made from
                             Nvfp4 main,          // (M, K) packed
                             Groups groups,       // of the M rows
                             int M, int K,
                             float ratio, ResidualSelection selection,
                             Nvfp4 residual);     // codes and scales are written; its outer is not used

// flips[m] = number of columns whose code differs between the two rows m of a and b, each quantised with
// OuterScale::row: how many activation codes the difference between two engines flips.
void count_code_flips(const float* a,  // (M, K)
                      const float* b,  // (M, K)
                      int M, int K,
                      int* flips);     // (M)

}  // namespace reference
}  // namespace quads
