// Attention over a sequence tree, forward and backward: one warp per (row, head). reference/attention.hpp.
#include "reference/attention.hpp"

#include <cmath>

#include "kernels/kernels.hpp"
#include "kernels/warp.cuh"
#include "reference/check.hpp"
#include "reference/codec.hpp"
#include "reference/exact_math.hpp"

namespace quads::kernels {
namespace {

// One head of width C of arrays with D columns.
struct Head {
    SequenceTree tree;
    int D, C;
    float scale;

    // The sizes of both kernels' grids: blockIdx.y is the head.
    __device__ const float* row(const float* x, std::int64_t t) const { return x + t * D + blockIdx.y * C; }
    __device__ float* row(float* x, std::int64_t t) const { return x + t * D + blockIdx.y * C; }
};

Head make_head(SequenceTree tree, int D, int H) {
    check(H >= 1 && D >= H && D % H == 0, "The width D = ", D, " must be a multiple of the number of heads H = ", H,
          ".");
    const int C = D / H;
    return {tree, D, C, static_cast<float>(1.0 / std::sqrt(static_cast<double>(C)))};
}

// Keys of the longest sequence, rounded up because the compiler reads shared memory four floats at a time.
__host__ __device__ int key_capacity(SequenceTree tree) { return (tree.prompt + tree.response + 3) / 4 * 4; }

// Bytes of shared memory for `arrays` floats per key.
std::size_t shared_bytes(SequenceTree tree, int arrays) {
    const std::size_t bytes = static_cast<std::size_t>(key_capacity(tree)) * arrays * sizeof(float);
    check(bytes <= 48 * 1024, "A sequence of ", tree.prompt + tree.response,
          " tokens is too long for the CUDA attention, expected at most ", 48 * 1024 / sizeof(float) / arrays,
          ". Shorten it or run with --device cpu.");
    return bytes;
}

// sum_c a[c] * b[c], ascending c.
__device__ float dot(const float* a, const float* b, int C) {
    float sum = 0.0f;
    for (int c = 0; c < C; ++c) sum += a[c] * b[c];
    return sum;
}

// p[i] = probability of the i-th key of tree row `row`, in shared memory; the lanes share the keys.
__device__ void probabilities(Head head, const float* q, const float* k_cache, int row, float* p) {
    const int keys = head.tree.keys(row);
    float largest = -HUGE_VALF;
    for (int i = lane_id(); i < keys; i += kWarp) {
        p[i] = dot(q, head.row(k_cache, head.tree.key_row(row, i)), head.C) * head.scale;
        largest = fmaxf(largest, p[i]);
    }
    largest = warp_max(largest);
    for (int i = lane_id(); i < keys; i += kWarp) p[i] = exact_exp(p[i] - largest);
    __syncwarp();
    float sum = 0.0f;
    for (int i = 0; i < keys; ++i) sum += p[i];
    __syncwarp();
    for (int i = lane_id(); i < keys; i += kWarp) p[i] /= sum;
    __syncwarp();
}

__global__ void split_qkv_kernel(const float* qkv, const int* rows, std::int64_t n, int D, KvFormat format, float* q,
                                 float* k_cache, float* v_cache) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const std::int64_t t = i / D, d = i % D;
    const float* in = qkv + t * 3 * D + d;
    float k = bf16_round(in[D]), v = bf16_round(in[2 * D]);
    if (format == KvFormat::fp8) k = e4m3_decode(e4m3_encode(k)), v = e4m3_decode(e4m3_encode(v));
    q[i] = bf16_round(in[0]);
    k_cache[static_cast<std::int64_t>(rows[t]) * D + d] = k;
    v_cache[static_cast<std::int64_t>(rows[t]) * D + d] = v;
}

__global__ void attention_kernel(const float* q, const float* k_cache, const float* v_cache, const int* rows, Head head,
                                 float* o) {
    extern __shared__ float p[];
    const int row = rows[blockIdx.x], keys = head.tree.keys(row);
    probabilities(head, head.row(q, blockIdx.x), k_cache, row, p);
    for (int c = lane_id(); c < head.C; c += kWarp) {
        float sum = 0.0f;
        for (int i = 0; i < keys; ++i) sum += bf16_round(p[i]) * head.row(v_cache, head.tree.key_row(row, i))[c];
        head.row(o, blockIdx.x)[c] = bf16_round(sum);
    }
}

// What the query side of the backward leaves for the key side.
struct Pair {
    float ds, p;  // ds[i] and bf16(p[i])
};

// Query side: dq, and the pairs (T, H, longest) of each query with its keys.
__global__ void query_gradient_kernel(const float* d_o, const float* q, const float* k, const float* v, Head head,
                                      Pair* pairs, float* dqkv) {
    extern __shared__ float shared[];
    const int t = blockIdx.x, keys = head.tree.keys(t), longest = head.tree.prompt + head.tree.response;
    float* p = shared;
    float* dp = shared + key_capacity(head.tree);
    probabilities(head, head.row(q, t), k, t, p);
    for (int i = lane_id(); i < keys; i += kWarp) {
        const float* value = head.row(v, head.tree.key_row(t, i));
        float sum = 0.0f;
        for (int c = 0; c < head.C; ++c) sum += bf16_round(head.row(d_o, t)[c]) * value[c];
        dp[i] = sum;
    }
    __syncwarp();
    float mean = 0.0f;
    for (int i = 0; i < keys; ++i) mean = fmaf(p[i], dp[i], mean);
    __syncwarp();
    Pair* out = pairs + (static_cast<std::int64_t>(t) * gridDim.y + blockIdx.y) * longest;
    for (int i = lane_id(); i < keys; i += kWarp) {
        dp[i] = bf16_round((p[i] * (dp[i] - mean)) * head.scale);
        out[i] = {dp[i], bf16_round(p[i])};
    }
    __syncwarp();
    for (int c = lane_id(); c < head.C; c += kWarp) {
        float sum = 0.0f;
        for (int i = 0; i < keys; ++i) sum += dp[i] * head.row(k, head.tree.key_row(t, i))[c];
        dqkv[static_cast<std::int64_t>(t) * 3 * head.D + blockIdx.y * head.C + c] = sum;
    }
}

// Key side: dk and dv of one row. The queries that see it are consecutive rows: the rest of its prompt with all
// responses, or the rest of its response. To all of them it is the same key, number `position`.
__global__ void key_gradient_kernel(const float* d_o, const float* q, Head head, const Pair* pairs, float* dqkv) {
    const SequenceTree tree = head.tree;
    const int row = blockIdx.x, position = tree.position(row), longest = tree.prompt + tree.response;
    const int past = position < tree.prompt ? row - position + tree.rows_per_prompt()
                                            : row - position + tree.prompt + tree.response;
    for (int c = lane_id(); c < head.C; c += kWarp) {
        float dk = 0.0f, dv = 0.0f;
#pragma unroll 4
        for (int t = row; t < past; ++t) {
            const Pair pair = pairs[(static_cast<std::int64_t>(t) * gridDim.y + blockIdx.y) * longest + position];
            dk += pair.ds * head.row(q, t)[c];
            dv += pair.p * bf16_round(head.row(d_o, t)[c]);
        }
        float* out = dqkv + static_cast<std::int64_t>(row) * 3 * head.D + blockIdx.y * head.C + c;
        out[head.D] = dk;
        out[2 * head.D] = dv;
    }
}

}  // namespace

void split_qkv(const float* qkv, const int* rows, int T, int D, KvFormat format, float* q, float* k_cache,
               float* v_cache) {
    const std::int64_t n = static_cast<std::int64_t>(T) * D;
    if (n == 0) return;
    split_qkv_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(qkv, rows, n, D, format, q, k_cache, v_cache);
    CUDA_CHECK_LAUNCH(split_qkv_kernel);
}

void attention(const float* q, const float* k_cache, const float* v_cache, const int* rows, SequenceTree tree, int T,
               int D, int H, float* o) {
    const Head head = make_head(tree, D, H);
    if (T == 0) return;
    attention_kernel<<<dim3(T, H), kWarp, shared_bytes(tree, 1), stream()>>>(q, k_cache, v_cache, rows, head, o);
    CUDA_CHECK_LAUNCH(attention_kernel);
}

void attention_backward(const float* d_o, const float* q, const float* k, const float* v, SequenceTree tree, int D,
                        int H, float* dqkv) {
    const Head head = make_head(tree, D, H);
    const int T = tree.rows();
    if (T == 0) return;
    const Scratch<Pair> pairs(static_cast<std::size_t>(T) * H * (tree.prompt + tree.response));
    const dim3 grid(T, H);
    query_gradient_kernel<<<grid, kWarp, shared_bytes(tree, 2), stream()>>>(d_o, q, k, v, head, pairs.data(), dqkv);
    CUDA_CHECK_LAUNCH(query_gradient_kernel);
    key_gradient_kernel<<<grid, kWarp, 0, stream()>>>(d_o, q, head, pairs.data(), dqkv);
    CUDA_CHECK_LAUNCH(key_gradient_kernel);
}

}  // namespace quads::kernels
