// The grouped GEMM that BF16, FP8 and the BF16 input gradient share: a block computes a tile of 32 x 32 outputs and
// stages 32 x 32 pieces of both operands in shared memory. Each output is one chain of fma in ascending order of the
// sum, so tiling changes no bit.
#pragma once

#include "kernels/groups.cuh"

namespace quads::kernels {

constexpr int kTile = 32;   // rows and columns of a tile, and the piece of the sum staged at a time
constexpr int kSide = 16;   // threads of a block: kSide x kSide, each with 2 x 2 outputs

// Calls y(m, n, group, sum) with sum = sum_k x(m, k) * w(group, n, k), ascending k from 0.
// X and W return one element; W::kSumContiguous says whether neighbours in k are neighbours in memory.
template <typename X, typename W, typename Y>
__global__ void gemm_tile_kernel(X x, W w, Y y, Groups groups, int N, int K) {
    __shared__ float xs[kTile][kTile + 1], ws[kTile][kTile + 1];  // [row or column][k]; the pad spreads rows over banks
    const RowTile rows = find_row_tile(groups, kTile, blockIdx.x);
    const int first_n = blockIdx.y * kTile;
    const int tx = threadIdx.x, ty = threadIdx.y, thread = ty * kSide + tx;

    float acc[2][2] = {};
    for (int first_k = 0; first_k < K && rows.begin < rows.end; first_k += kTile) {
        for (int i = thread; i < kTile * kTile; i += kSide * kSide) {
            const int fast = i % kTile, slow = i / kTile;
            const int m = rows.begin + slow, k = first_k + fast;
            xs[slow][fast] = m < rows.end && k < K ? x(m, k) : 0.0f;
            const int n_local = W::kSumContiguous ? slow : fast, k_local = W::kSumContiguous ? fast : slow;
            const bool inside = first_n + n_local < N && first_k + k_local < K;
            ws[n_local][k_local] = inside ? w(rows.group, first_n + n_local, first_k + k_local) : 0.0f;
        }
        __syncthreads();
        const int depth = min(kTile, K - first_k);
#pragma unroll 8
        for (int k = 0; k < depth; ++k) {
            for (int i = 0; i < 2; ++i) {
                for (int j = 0; j < 2; ++j) acc[i][j] = fmaf(xs[ty + i * kSide][k], ws[tx + j * kSide][k], acc[i][j]);
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
            const int m = rows.begin + ty + i * kSide, n = first_n + tx + j * kSide;
            if (m < rows.end && n < N) y(m, n, rows.group, acc[i][j]);
        }
    }
}

template <typename X, typename W, typename Y>
void launch_gemm_tile(X x, W w, Y y, Groups groups, int M, int N, int K) {
    if (M == 0 || N == 0) return;
    const dim3 grid(row_tiles_bound(M, groups.E, kTile), blocks_for(N, kTile));
    gemm_tile_kernel<<<grid, dim3(kSide, kSide), 0, stream()>>>(x, w, y, groups, N, K);
    CUDA_CHECK_LAUNCH(gemm_tile_kernel);
}

}  // namespace quads::kernels
