// Embeddings and the elementwise operations of the residual stream: reference/embedding.hpp.
#include "reference/embedding.hpp"

#include "kernels/kernels.hpp"
#include "kernels/warp.cuh"
#include "reference/codec.hpp"

namespace quads::kernels {
namespace {

// Element of the (rows, D) array that this thread works on; one thread per element.
__device__ std::int64_t my_element() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

__global__ void embed_kernel(const int* tokens, const int* positions, const float* token_table,
                             const float* position_table, std::int64_t n, int D, bool bf16, float* x) {
    const std::int64_t i = my_element();
    if (i >= n) return;
    const std::int64_t t = i / D, d = i % D;
    const float sum = token_table[tokens[t] * static_cast<std::int64_t>(D) + d] +
                      position_table[positions[t] * static_cast<std::int64_t>(D) + d];
    x[i] = bf16 ? bf16_round(sum) : sum;
}

// One warp per table row and 32 columns. The lanes compare 32 indices at once; the ballot's set bits, lowest first, are
// the matching rows in ascending order.
__global__ void embed_backward_kernel(const float* dx, const int* index, int T, int D, float* d_table) {
    const int row = blockIdx.x, d = blockIdx.y * kWarp + lane_id();
    float sum = 0.0f;
    for (int begin = 0; begin < T; begin += kWarp) {
        const int t = begin + lane_id();
        unsigned matches = __ballot_sync(kAllLanes, t < T && index[t] == row);
        for (; matches != 0; matches &= matches - 1) {
            const std::int64_t match = begin + __ffs(matches) - 1;
            if (d < D) sum = sum + dx[match * D + d];
        }
    }
    if (d < D) d_table[static_cast<std::int64_t>(row) * D + d] = sum;
}

__global__ void add_kernel(const float* a, const float* b, std::int64_t n, bool bf16, float* y) {
    const std::int64_t i = my_element();
    if (i >= n) return;
    const float sum = a[i] + b[i];
    y[i] = bf16 ? bf16_round(sum) : sum;
}

__global__ void round_bf16_kernel(const float* x, std::int64_t n, float* y) {
    const std::int64_t i = my_element();
    if (i < n) y[i] = bf16_round(x[i]);
}

template <typename Element>
__global__ void scatter_rows_kernel(const Element* x, const int* rows, std::int64_t n, int D, Element* y) {
    const std::int64_t i = my_element();
    if (i < n) y[static_cast<std::int64_t>(rows[i / D]) * D + i % D] = x[i];
}

template <typename Element>
void scatter(const Element* x, const int* rows, int T, int D, Element* y) {
    const std::int64_t n = static_cast<std::int64_t>(T) * D;
    if (n == 0) return;
    scatter_rows_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(x, rows, n, D, y);
    CUDA_CHECK_LAUNCH(scatter_rows_kernel);
}

}  // namespace

void embed(const int* tokens, const int* positions, const float* token_table, const float* position_table, int T, int D,
           bool bf16, float* x) {
    const std::int64_t n = static_cast<std::int64_t>(T) * D;
    if (n == 0) return;
    embed_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(tokens, positions, token_table, position_table, n, D, bf16,
                                                           x);
    CUDA_CHECK_LAUNCH(embed_kernel);
}

void embed_backward(const float* dx, const int* index, int T, int D, int rows, float* d_table) {
    if (rows == 0 || D == 0) return;
    const dim3 grid(rows, blocks_for(D, kWarp));
    embed_backward_kernel<<<grid, kWarp, 0, stream()>>>(dx, index, T, D, d_table);
    CUDA_CHECK_LAUNCH(embed_backward_kernel);
}

void add(const float* a, const float* b, int n, bool bf16, float* y) {
    if (n == 0) return;
    add_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(a, b, n, bf16, y);
    CUDA_CHECK_LAUNCH(add_kernel);
}

void round_bf16(const float* x, int n, float* y) {
    if (n == 0) return;
    round_bf16_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(x, n, y);
    CUDA_CHECK_LAUNCH(round_bf16_kernel);
}

void scatter_rows(const float* x, const int* rows, int T, int D, float* y) { scatter(x, rows, T, D, y); }

void scatter_rows_int(const int* x, const int* rows, int T, int D, int* y) { scatter(x, rows, T, D, y); }

}  // namespace quads::kernels
