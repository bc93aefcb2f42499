// BF16 GEMM and its two gradients, grouped: reference/gemm_bf16.hpp.
#include "reference/gemm_bf16.hpp"

#include "kernels/gemm_tile.cuh"
#include "kernels/kernels.hpp"
#include "reference/codec.hpp"

namespace quads::kernels {
namespace {

struct Rows {
    const float* data;  // (M, columns)
    int columns;
    __device__ float operator()(int m, int k) const { return data[static_cast<std::int64_t>(m) * columns + k]; }
};

struct RoundedRows {
    Rows rows;
    __device__ float operator()(int m, int k) const { return bf16_round(rows(m, k)); }
};

struct Weight {
    static constexpr bool kSumContiguous = true;
    const float* data;  // (E, N, K)
    int N, K;
    __device__ float operator()(int e, int n, int k) const {
        return data[(static_cast<std::int64_t>(e) * N + n) * K + k];
    }
};

// The weight as the input gradient sees it: its output is k, its sum runs over n.
struct TransposedWeight {
    static constexpr bool kSumContiguous = false;
    Weight weight;
    __device__ float operator()(int e, int k, int n) const { return weight(e, n, k); }
};

struct ScaledOutput {
    float* data;           // (M, columns)
    const float* w_outer;  // (E) or nullptr
    int columns;
    __device__ void operator()(int m, int n, int e, float acc) const {
        data[static_cast<std::int64_t>(m) * columns + n] = w_outer != nullptr ? acc * w_outer[e] : acc;
    }
};

constexpr int kPatch = 16;   // dw: a block computes 16 x 16 outputs, one a thread
constexpr int kDepth = 128;  // dw: rows staged at a time
constexpr int kVector = 4;   // dw: rows that one read from shared memory delivers; also the pad between the lines

// dw[e,n,k] = sum of dy[m,n] * x[m,k] down the rows of group e. While the block sums one chunk of rows from shared
// memory it already fetches the next into registers.
__global__ void weight_gradient_kernel(const float* dy, const float* x, Groups groups, int N, int K, float* dw) {
    __shared__ __align__(16) float dys[kPatch][kDepth + kVector], xs[kPatch][kDepth + kVector];  // [n or k][row]
    const int e = blockIdx.z, begin = groups.offsets[e], end = groups.offsets[e + 1];
    const int first_n = blockIdx.y * kPatch, first_k = blockIdx.x * kPatch;
    const int tx = threadIdx.x, ty = threadIdx.y;

    constexpr int kEach = kDepth / kPatch;
    float next_dy[kEach], next_x[kEach];
    const auto fetch = [&](int from) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const std::int64_t m = from + ty + i * kPatch;
            next_dy[i] = m < end && first_n + tx < N ? bf16_round(dy[m * N + first_n + tx]) : 0.0f;
            next_x[i] = m < end && first_k + tx < K ? bf16_round(x[m * K + first_k + tx]) : 0.0f;
        }
    };

    float acc = 0.0f;
    fetch(begin);
    for (int from = begin; from < end; from += kDepth) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            dys[tx][ty + i * kPatch] = next_dy[i];
            xs[tx][ty + i * kPatch] = next_x[i];
        }
        __syncthreads();
        fetch(from + kDepth);
        // Rows beyond the end hold zeros, which change no sum.
#pragma unroll 4
        for (int m = 0; m < min(kDepth, end - from); m += kVector) {
            const float4 a = *reinterpret_cast<const float4*>(&dys[ty][m]);
            const float4 b = *reinterpret_cast<const float4*>(&xs[tx][m]);
            acc = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, acc))));
        }
    }
    const int n = first_n + ty, k = first_k + tx;
    if (n < N && k < K) dw[(static_cast<std::int64_t>(e) * N + n) * K + k] = acc;
}

}  // namespace

void gemm_bf16(const float* x, const float* w, const float* w_outer, Groups groups, int M, int N, int K, float* y) {
    launch_gemm_tile(Rows{x, K}, Weight{w, N, K}, ScaledOutput{y, w_outer, N}, groups, M, N, K);
}

void gemm_bf16_backward_input(const float* dy, const float* w, const float* w_outer, Groups groups, int M, int N, int K,
                              float* dx) {
    launch_gemm_tile(RoundedRows{{dy, N}}, TransposedWeight{{w, N, K}}, ScaledOutput{dx, w_outer, K}, groups, M, K, N);
}

void gemm_bf16_backward_weight(const float* dy, const float* x, Groups groups, int, int N, int K, float* dw) {
    if (groups.E == 0 || N == 0 || K == 0) return;
    const dim3 grid(blocks_for(K, kPatch), blocks_for(N, kPatch), groups.E);
    weight_gradient_kernel<<<grid, dim3(kPatch, kPatch), 0, stream()>>>(dy, x, groups, N, K, dw);
    CUDA_CHECK_LAUNCH(weight_gradient_kernel);
}

}  // namespace quads::kernels
