// W4A4 GEMM, rung 4. Tensor cores, with the bits of the plain loop. mma.m16n8k16 sums 16 products, one scale block, and
// with C = 0 and FP16 operands that sum is exact; only then FP32 arithmetic adds it to the accumulator, rounded once,
// in order. The scale of w is folded into its operand (q * 2^-14 * s has 6 significant bits, exact in FP16), the scale
// of x into the fused multiply-add. A wider k or a running C would mix scale blocks or round in an order of the
// hardware's. One warp computes 16 rows of x by 8 rows of w and reads both straight from device memory.
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/fragments.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/warp.cuh"

namespace quads::kernels::ladder {
namespace {

constexpr int kRows = 16, kColumns = 8, kWarps = 4;  // of x and of w in one instruction; warps of a block, side by side

// The four codes of this lane in block b of a row, and the scale; zeros outside of the matrix.
struct LaneBlock {
    std::uint32_t codes;
    std::uint8_t scale;
};

__device__ LaneBlock load(Nvfp4 q, std::int64_t row, std::int64_t end, int blocks, int b) {
    if (row >= end) return {0, 0};
    const std::int64_t at = row * blocks + b;
    const auto* codes = reinterpret_cast<const std::uint16_t*>(q.codes + at * (kBlock / 2));
    return {codes[lane_id() % 4], q.scales[at]};
}

// One block of 16 rows of x: rows g and g + 8 of this lane.
__device__ void add_terms(Nvfp4 x, RowTile rows, int blocks, int b, const std::uint32_t (&w_operand)[2],
                          float (&acc)[4]) {
    const LaneBlock upper = load(x, rows.begin + lane_id() / 4, rows.end, blocks, b);
    const LaneBlock lower = load(x, rows.begin + lane_id() / 4 + 8, rows.end, blocks, b);
    std::uint32_t x_operand[4];
    four_codes_to_half2(upper.codes, x_operand[0], x_operand[2]);
    four_codes_to_half2(lower.codes, x_operand[1], x_operand[3]);
    float dot[4];  // dot_b * s_w * 2^-28
    mma_16x8x16(x_operand, w_operand, dot);
    const float upper_scale = e4m3_decode(upper.scale), lower_scale = e4m3_decode(lower.scale);
    for (int i = 0; i < 4; ++i) acc[i] = fmaf(dot[i], i < 2 ? upper_scale : lower_scale, acc[i]);
}

template <bool kResidual>
__global__ void gemm_kernel(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int N, int K, float* y) {
    const RowTile rows = find_row_tile(groups, kRows, blockIdx.x);
    const int g = lane_id() / 4, t = lane_id() % 4, blocks = blocks_of(K);
    const int first_n = (blockIdx.y * kWarps + threadIdx.x / kWarp) * kColumns;
    if (rows.begin >= rows.end || first_n >= N) return;
    const std::int64_t w_begin = static_cast<std::int64_t>(rows.group) * N;

    float acc[4] = {};  // times 2^-28 until the end: a power of two changes no rounding
    for (int b = 0; b < blocks; ++b) {
        const LaneBlock mine = load(w, w_begin + first_n + g, w_begin + N, blocks, b);
        const __half2 scale = scales_to_half2(static_cast<std::uint16_t>(mine.scale | mine.scale << 8));
        std::uint32_t w_operand[2];
        four_codes_to_half2(mine.codes, w_operand[0], w_operand[1]);
        for (std::uint32_t& pair : w_operand) pair = multiply_half2(pair, scale);
        add_terms(x, rows, blocks, b, w_operand, acc);
        if (kResidual) add_terms(residual, rows, blocks, b, w_operand, acc);
    }
    for (int i = 0; i < 4; ++i) {
        const int m = rows.begin + g + i / 2 * 8, n = first_n + 2 * t + i % 2;
        if (m >= rows.end || n >= N) continue;
        const float x_outer = x.outer[x.outer_scale == OuterScale::row ? m : rows.group];
        y[static_cast<std::int64_t>(m) * N + n] = (acc[i] * kUndoShift) * (x_outer * w.outer[rows.group]);
    }
}

}  // namespace

void gemm_w4a4_4_mma(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    if (M == 0 || N == 0) return;
    const dim3 grid(row_tiles_bound(M, groups.E, kRows), blocks_for(N, kColumns * kWarps));
    const auto kernel = residual != nullptr ? gemm_kernel<true> : gemm_kernel<false>;
    kernel<<<grid, kWarps * kWarp, 0, stream()>>>(x, residual != nullptr ? *residual : x, w, groups, N, K, y);
    CUDA_CHECK_LAUNCH(gemm_kernel);
}

}  // namespace quads::kernels::ladder
