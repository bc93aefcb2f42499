// W4A4 GEMM, rung 3. Twice an E2M1 value is an integer of at most 12, so a block dot is an exact integer sum and __dp4a
// does four products in one instruction: 4 instructions per block dot, not 16. A thread computes 4 x 4 outputs, so each
// operand that it reads from shared memory serves four times.
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/ladder.hpp"
#include "reference/codec.hpp"

namespace quads::kernels::ladder {
namespace {

constexpr int kSide = 16, kPer = 4, kTile = kSide * kPer;  // threads a side, outputs a thread and side, outputs a side
constexpr int kStage = 4;                                  // scale blocks staged at a time
constexpr int kWords = kBlock / 4;                         // words of four doubled values in a scale block

struct Stage {
    int words[kStage * kWords][kTile + 1];  // rows innermost: the threads of a warp read neighbours
    float scales[kStage][kTile + 1];
};

// Four codes, lowest nibble first, as four bytes of doubled values.
__device__ int doubled_bytes(std::uint32_t codes) {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= (e2m1_doubled((codes >> (4 * i)) & 15u) & 0xFFu) << (8 * i);
    return static_cast<int>(word);
}

__device__ void load_stage(Stage& stage, Nvfp4 q, std::int64_t begin, std::int64_t end, int first, int blocks) {
    for (int i = threadIdx.y * kSide + threadIdx.x; i < kTile * kStage * kWords; i += kSide * kSide) {
        const int row = i / (kStage * kWords), word = i % (kStage * kWords), b = first + word / kWords;
        const bool inside = begin + row < end && b < blocks;
        const std::int64_t at = (begin + row) * blocks + b;
        const std::uint8_t* codes = q.codes + at * (kBlock / 2) + word % kWords * 2;
        stage.words[word][row] = inside ? doubled_bytes(codes[0] | codes[1] << 8) : 0;
        if (word % kWords == 0) stage.scales[word / kWords][row] = inside ? e4m3_decode(q.scales[at]) : 0.0f;
    }
}

// acc[i][j] += dot * (sx * sw) of block b for rows threadIdx.y + 16 i of x and threadIdx.x + 16 j of w.
__device__ void add_terms(const Stage& x, const Stage& w, int b, float (&acc)[kPer][kPer]) {
    int dot4[kPer][kPer] = {};  // 4 * dot: both factors are doubled
#pragma unroll
    for (int word = b * kWords; word < (b + 1) * kWords; ++word) {
#pragma unroll
        for (int i = 0; i < kPer; ++i) {
#pragma unroll
            for (int j = 0; j < kPer; ++j) {
                dot4[i][j] =
                    __dp4a(x.words[word][threadIdx.y + i * kSide], w.words[word][threadIdx.x + j * kSide], dot4[i][j]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
#pragma unroll
        for (int j = 0; j < kPer; ++j) {
            const float scale = x.scales[b][threadIdx.y + i * kSide] * w.scales[b][threadIdx.x + j * kSide];
            acc[i][j] += (static_cast<float>(dot4[i][j]) * 0.25f) * scale;
        }
    }
}

template <bool kResidual>
__global__ void gemm_kernel(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int N, int K, float* y) {
    __shared__ Stage xs, ws;
    __shared__ Stage rs;  // dropped by the compiler where there is no residual
    const RowTile rows = find_row_tile(groups, kTile, blockIdx.x);
    const int first_n = blockIdx.y * kTile, blocks = blocks_of(K);
    const std::int64_t w_begin = static_cast<std::int64_t>(rows.group) * N;
    float acc[kPer][kPer] = {};
    for (int first = 0; first < blocks && rows.begin < rows.end; first += kStage) {
        load_stage(xs, x, rows.begin, rows.end, first, blocks);
        if (kResidual) load_stage(rs, residual, rows.begin, rows.end, first, blocks);
        load_stage(ws, w, w_begin + first_n, w_begin + N, first, blocks);
        __syncthreads();
        for (int b = 0; b < kStage; ++b) {
            add_terms(xs, ws, b, acc);
            if (kResidual) add_terms(rs, ws, b, acc);
        }
        __syncthreads();
    }
    for (int i = 0; i < kPer; ++i) {
        for (int j = 0; j < kPer; ++j) {
            const int m = rows.begin + threadIdx.y + i * kSide, n = first_n + threadIdx.x + j * kSide;
            if (m >= rows.end || n >= N) continue;
            const float x_outer = x.outer[x.outer_scale == OuterScale::row ? m : rows.group];
            y[static_cast<std::int64_t>(m) * N + n] = acc[i][j] * (x_outer * w.outer[rows.group]);
        }
    }
}

}  // namespace

void gemm_w4a4_3_dp4a(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    if (M == 0 || N == 0) return;
    const dim3 grid(row_tiles_bound(M, groups.E, kTile), blocks_for(N, kTile)), block(kSide, kSide);
    const auto kernel = residual != nullptr ? gemm_kernel<true> : gemm_kernel<false>;
    kernel<<<grid, block, 0, stream()>>>(x, residual != nullptr ? *residual : x, w, groups, N, K, y);
    CUDA_CHECK_LAUNCH(gemm_kernel);
}

}  // namespace quads::kernels::ladder
