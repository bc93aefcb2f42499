// W4A4 GEMM, plain and residual-compensated, split or not, grouped: reference/gemm_w4a4.hpp. A block computes 32 x 32
// outputs. Twice an E2M1 value is an integer, so __dp4a sums the 16 products of a scale block exactly, four at a time.
#include "reference/gemm_w4a4.hpp"

#include "kernels/gemm_tile.cuh"
#include "kernels/kernels.hpp"
#include "reference/check.hpp"
#include "reference/codec.hpp"

namespace quads::kernels {
namespace {

constexpr int kStage = 4;                // scale blocks staged at a time
constexpr int kWords = kBlock / 4;       // 32-bit words of four doubled values per scale block
constexpr int kPad = kStage * kWords + 1;  // an odd stride spreads the rows over the banks

// 32 rows of a packed matrix, kStage scale blocks of each, unpacked.
struct Stage {
    int words[kTile][kPad];
    float scales[kTile][kStage + 1];
};

// Four codes, lowest nibble first, as four bytes of doubled values.
__device__ int unpack_word(std::uint32_t codes) {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= (e2m1_doubled((codes >> (4 * i)) & 15u) & 0xFFu) << (8 * i);
    return static_cast<int>(word);
}

// Unpacks blocks first .. first + kStage - 1 of the rows begin .. end-1, at most kTile; a thread takes two bytes.
__device__ void load_stage(Stage& stage, Nvfp4 q, std::int64_t begin, std::int64_t end, int first, int blocks,
                           int thread) {
    for (int i = thread; i < kTile * kStage * kWords; i += kSide * kSide) {
        const int row = i / (kStage * kWords), word = i % (kStage * kWords), b = first + word / kWords;
        const bool inside = begin + row < end && b < blocks;
        const std::int64_t at = (begin + row) * blocks + b;
        const std::uint8_t* codes = q.codes + at * (kBlock / 2) + word % kWords * 2;
        stage.words[row][word] = inside ? unpack_word(codes[0] | (codes[1] << 8)) : 0;
        if (word % kWords == 0) stage.scales[row][word / kWords] = inside ? e4m3_decode(q.scales[at]) : 0.0f;
    }
}

// dot * (sx * sw) of one scale block, exact.
__device__ float block_term(const Stage& x, int row, const Stage& w, int column, int b) {
    int dot4 = 0;  // 4 * dot: both factors are doubled
    for (int i = 0; i < kWords; ++i) dot4 = __dp4a(x.words[row][b * kWords + i], w.words[column][b * kWords + i], dot4);
    return (static_cast<float>(dot4) * 0.25f) * (x.scales[row][b] * w.scales[column][b]);
}

template <bool kResidual>
__global__ void gemm_w4a4_kernel(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int N, int K, int splits,
                                 float* y) {
    __shared__ Stage xs, rs, ws;  // the compiler drops rs where there is no residual
    const RowTile rows = find_row_tile(groups, kTile, blockIdx.x);
    const int first_n = blockIdx.y * kTile, blocks = blocks_of(K), range = split_blocks(K, splits);
    const int tx = threadIdx.x, ty = threadIdx.y, thread = ty * kSide + tx;
    const std::int64_t w_first = static_cast<std::int64_t>(rows.group) * N;

    float acc[2][2] = {}, part[2][2] = {};  // the sum of the ranges before, and of this one
    for (int first = 0; first < blocks && rows.begin < rows.end; first += kStage) {
        load_stage(xs, x, rows.begin, rows.end, first, blocks, thread);
        if (kResidual) load_stage(rs, residual, rows.begin, rows.end, first, blocks, thread);
        load_stage(ws, w, w_first + first_n, w_first + min(N, first_n + kTile), first, blocks, thread);
        __syncthreads();
        for (int b = 0; b < min(kStage, blocks - first); ++b) {
            for (int i = 0; i < 2; ++i) {
                for (int j = 0; j < 2; ++j) {
                    part[i][j] += block_term(xs, ty + i * kSide, ws, tx + j * kSide, b);
                    if (kResidual) part[i][j] += block_term(rs, ty + i * kSide, ws, tx + j * kSide, b);
                }
            }
        }
        __syncthreads();
        if ((first + kStage) % range != 0 && first + kStage < blocks) continue;  // ranges are whole stages
        for (int i = 0; i < 2; ++i) {
            for (int j = 0; j < 2; ++j) acc[i][j] += part[i][j], part[i][j] = 0.0f;
        }
    }
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
            const int m = rows.begin + ty + i * kSide, n = first_n + tx + j * kSide;
            if (m >= rows.end || n >= N) continue;
            const float x_outer = x.outer[x.outer_scale == OuterScale::row ? m : rows.group];
            y[static_cast<std::int64_t>(m) * N + n] = acc[i][j] * (x_outer * w.outer[rows.group]);
        }
    }
}

template <bool kResidual>
void launch(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, int splits, float* y) {
    check(K >= 1, "A W4A4 GEMM needs at least one column, but K is ", K, ". Pass matrices with columns.");
    check(splits >= 1, "A W4A4 GEMM sums at least one range of K, but splits is ", splits, ". Pass 1 for no split.");
    if (M == 0 || N == 0) return;
    const dim3 grid(row_tiles_bound(M, groups.E, kTile), blocks_for(N, kTile));
    gemm_w4a4_kernel<kResidual><<<grid, dim3(kSide, kSide), 0, stream()>>>(x, residual, w, groups, N, K, splits, y);
    CUDA_CHECK_LAUNCH(gemm_w4a4_kernel);
}

}  // namespace

void gemm_w4a4(Nvfp4 x, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    launch<false>(x, x, w, groups, M, N, K, 1, y);
}

void gemm_w4a4_residual(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    launch<true>(x, residual, w, groups, M, N, K, 1, y);
}

void gemm_w4a4_split(Nvfp4 x, Nvfp4 w, Groups groups, int M, int N, int K, int splits, float* y) {
    launch<false>(x, x, w, groups, M, N, K, splits, y);
}

void gemm_w4a4_residual_split(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, int splits,
                              float* y) {
    launch<true>(x, residual, w, groups, M, N, K, splits, y);
}

}  // namespace quads::kernels
