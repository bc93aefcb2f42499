// W4A4 GEMM, rung 2. A block of threads computes 16 x 16 outputs. It decodes each operand once into shared memory,
// where 16 threads use it: a sixteenth of the loads and of the decoding.
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/ladder.hpp"
#include "reference/codec.hpp"

namespace quads::kernels::ladder {
namespace {

constexpr int kSide = 16;  // rows and columns of a tile of outputs
constexpr int kStage = 4;  // scale blocks staged at a time

// The same kStage scale blocks of 16 rows, decoded. The extra column spreads the rows over the banks.
struct Stage {
    float values[kSide][kStage * kBlock + 1];
    float scales[kSide][kStage + 1];
};

// Rows begin .. end-1, blocks first .. first + kStage - 1; zeros where the matrix ends.
__device__ void load_stage(Stage& stage, Nvfp4 q, std::int64_t begin, std::int64_t end, int first, int blocks) {
    const int row = threadIdx.y;
    for (int k = threadIdx.x; k < kStage * kBlock; k += kSide) {
        const int b = first + k / kBlock;
        const bool inside = begin + row < end && b < blocks;
        const std::int64_t at = (begin + row) * blocks + b;
        stage.values[row][k] = inside ? e2m1_decode(code_at(q.codes + at * (kBlock / 2), k % kBlock)) : 0.0f;
        if (k % kBlock == 0) stage.scales[row][k / kBlock] = inside ? e4m3_decode(q.scales[at]) : 0.0f;
    }
}

__device__ float block_term(const Stage& x, const Stage& w, int b) {
    float dot = 0.0f;
    for (int i = b * kBlock; i < (b + 1) * kBlock; ++i) dot += x.values[threadIdx.y][i] * w.values[threadIdx.x][i];
    return dot * (x.scales[threadIdx.y][b] * w.scales[threadIdx.x][b]);
}

template <bool kResidual>
__global__ void gemm_kernel(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int N, int K, float* y) {
    __shared__ Stage xs, rs, ws;
    const RowTile rows = find_row_tile(groups, kSide, blockIdx.x);
    const int first_n = blockIdx.y * kSide, blocks = blocks_of(K);
    const std::int64_t w_begin = static_cast<std::int64_t>(rows.group) * N;
    float acc = 0.0f;
    for (int first = 0; first < blocks && rows.begin < rows.end; first += kStage) {
        load_stage(xs, x, rows.begin, rows.end, first, blocks);
        if (kResidual) load_stage(rs, residual, rows.begin, rows.end, first, blocks);
        load_stage(ws, w, w_begin + first_n, w_begin + N, first, blocks);
        __syncthreads();
        for (int b = 0; b < kStage; ++b) {  // blocks beyond the matrix add +0
            acc += block_term(xs, ws, b);
            if (kResidual) acc += block_term(rs, ws, b);
        }
        __syncthreads();
    }
    const int m = rows.begin + threadIdx.y, n = first_n + threadIdx.x;
    if (m >= rows.end || n >= N) return;
    const float x_outer = x.outer[x.outer_scale == OuterScale::row ? m : rows.group];
    y[static_cast<std::int64_t>(m) * N + n] = acc * (x_outer * w.outer[rows.group]);
}

}  // namespace

void gemm_w4a4_2_shared(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    if (M == 0 || N == 0) return;
    const dim3 grid(row_tiles_bound(M, groups.E, kSide), blocks_for(N, kSide)), block(kSide, kSide);
    const auto kernel = residual != nullptr ? gemm_kernel<true> : gemm_kernel<false>;
    kernel<<<grid, block, 0, stream()>>>(x, residual != nullptr ? *residual : x, w, groups, N, K, y);
    CUDA_CHECK_LAUNCH(gemm_kernel);
}

}  // namespace quads::kernels::ladder
