// Mixture-of-experts routing: top-k, sorting rows by expert, combining, and the backwards. reference/router.hpp.
#include "reference/router.hpp"

#include "kernels/kernels.hpp"
#include "kernels/warp.cuh"
#include "reference/check.hpp"
#include "reference/exact_math.hpp"

namespace quads::kernels {
namespace {

constexpr int kTokens = 32;  // tokens of a block where a thread takes a token: few, to meet many multiprocessors

void check_slots(int E, int S) {
    check(S >= 1 && S <= E, "A token goes to S = ", S, " of E = ", E, " experts; choose S from 1 to E.");
}

__device__ bool contains(const int* experts, int S, int e) {
    for (int s = 0; s < S; ++s) {
        if (experts[s] == e) return true;
    }
    return false;
}

__device__ float chosen_sum(const float* probs, const int* experts, int S) {
    float sum = 0.0f;
    for (int s = 0; s < S; ++s) sum += probs[experts[s]];
    return sum;
}

// One thread per token: E is small and every step depends on the one before.
__global__ void router_topk_kernel(const float* logits, const int* replay, int T, int E, int S, float* probs,
                                   int* experts, float* gates) {
    const std::int64_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= T) return;
    logits += t * E, probs += t * E, experts += t * S, gates += t * S;

    float largest = logits[0];
    for (int e = 1; e < E; ++e) largest = fmaxf(largest, logits[e]);
    float sum = 0.0f;
    for (int e = 0; e < E; ++e) {
        probs[e] = exact_exp(logits[e] - largest);
        sum += probs[e];
    }
    for (int e = 0; e < E; ++e) probs[e] /= sum;

    for (int s = 0; s < S; ++s) {
        int best = -1;
        for (int e = 0; e < E && replay == nullptr; ++e) {
            if (!contains(experts, s, e) && (best < 0 || logits[e] > logits[best])) best = e;
        }
        experts[s] = replay != nullptr ? replay[t * S + s] : best;
    }
    const float chosen = chosen_sum(probs, experts, S);
    for (int s = 0; s < S; ++s) gates[s] = probs[experts[s]] / chosen;
}

__global__ void router_topk_backward_kernel(const float* dgates, const float* probs, const int* experts,
                                            const float* gates, const int* offsets, float balance, int T, int E, int S,
                                            float* dlogits) {
    const std::int64_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= T) return;
    dgates += t * S, probs += t * E, experts += t * S, gates += t * S, dlogits += t * E;

    const float z = chosen_sum(probs, experts, S);
    float gate_mean = 0.0f;
    for (int s = 0; s < S; ++s) gate_mean = fmaf(dgates[s], gates[s], gate_mean);
    const auto d_prob = [&](int e) {
        const float share = static_cast<float>(offsets[e + 1] - offsets[e]) / static_cast<float>(T);
        float dp = ((balance * static_cast<float>(E)) * share) / static_cast<float>(T);
        for (int s = 0; s < S; ++s) {
            if (experts[s] == e) dp += (dgates[s] - gate_mean) / z;
        }
        return dp;
    };
    float prob_mean = 0.0f;
    for (int e = 0; e < E; ++e) prob_mean = fmaf(probs[e], d_prob(e), prob_mean);
    for (int e = 0; e < E; ++e) dlogits[e] = probs[e] * (d_prob(e) - prob_mean);
}

constexpr int kSortThreads = 1024;

// A stable counting sort with one block per expert: its rows start after all pairs of lower experts, and its pairs keep
// their order because every pass over 1024 pairs ranks them by position: warps before mine, then lanes before mine.
__global__ void route_rows_kernel(const int* experts, int R, int E, int S, int* offsets, int* source, int* place) {
    __shared__ int warp_matches[kSortThreads / kWarp];
    const int expert = blockIdx.x, warp = threadIdx.x / kWarp;
    int next = 0;
    for (int first = 0; first < R; first += kSortThreads) {
        const int i = first + threadIdx.x;
        next += __syncthreads_count(i < R && experts[i] < expert);
    }
    if (threadIdx.x == 0) offsets[expert] = next;
    if (threadIdx.x == 0 && expert == E - 1) offsets[E] = R;

    for (int first = 0; first < R; first += kSortThreads) {
        const int i = first + threadIdx.x;
        const bool match = i < R && experts[i] == expert;
        const unsigned matches = __ballot_sync(kAllLanes, match);
        if (lane_id() == 0) warp_matches[warp] = __popc(matches);
        const int total = __syncthreads_count(match);
        if (match) {
            int row = next + __popc(matches & ((1u << lane_id()) - 1u));
            for (int w = 0; w < warp; ++w) row += warp_matches[w];
            place[i] = row;
            source[row] = i / S;
        }
        next += total;
        __syncthreads();
    }
}

__global__ void gather_rows_kernel(const float* x, const int* source, std::int64_t n, int D, float* y) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[static_cast<std::int64_t>(source[i / D]) * D + i % D];
}

__global__ void combine_rows_kernel(const float* x, const int* place, const float* gates, std::int64_t n, int D, int S,
                                    float* y) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const std::int64_t t = i / D, d = i % D;
    float sum = 0.0f;
    for (int s = 0; s < S; ++s) {
        const std::int64_t row = place[t * S + s];
        sum = fmaf(gates != nullptr ? gates[t * S + s] : 1.0f, x[row * D + d], sum);
    }
    y[i] = sum;
}

// One warp per (token, slot).
__global__ void combine_rows_backward_kernel(const float* dy, const float* x, const int* place, const float* gates,
                                             int R, int D, int S, float* dx, float* dgates) {
    const int slot = global_warp();
    if (slot >= R) return;
    const float* gradient = dy + static_cast<std::int64_t>(slot / S) * D;
    const std::int64_t row = static_cast<std::int64_t>(place[slot]) * D;
    const float sum = ascending_fma(D, [&](int d) { return make_float2(gradient[d], x[row + d]); });
    for (int d = lane_id(); d < D; d += kWarp) dx[row + d] = gates[slot] * gradient[d];
    if (lane_id() == 0) dgates[slot] = sum;
}

}  // namespace

void router_topk(const float* logits, const int* replay, int T, int E, int S, float* probs, int* experts,
                 float* gates) {
    check_slots(E, S);
    if (T == 0) return;
    router_topk_kernel<<<blocks_for(T, kTokens), kTokens, 0, stream()>>>(logits, replay, T, E, S, probs, experts,
                                                                         gates);
    CUDA_CHECK_LAUNCH(router_topk_kernel);
}

void route_rows(const int* experts, int T, int E, int S, int* offsets, int* source, int* place) {
    route_rows_kernel<<<E, kSortThreads, 0, stream()>>>(experts, T * S, E, S, offsets, source, place);
    CUDA_CHECK_LAUNCH(route_rows_kernel);
}

void gather_rows(const float* x, const int* source, int R, int D, float* y) {
    const std::int64_t n = static_cast<std::int64_t>(R) * D;
    if (n == 0) return;
    gather_rows_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(x, source, n, D, y);
    CUDA_CHECK_LAUNCH(gather_rows_kernel);
}

void combine_rows(const float* x, const int* place, const float* gates, int T, int D, int S, float* y) {
    const std::int64_t n = static_cast<std::int64_t>(T) * D;
    if (n == 0) return;
    combine_rows_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(x, place, gates, n, D, S, y);
    CUDA_CHECK_LAUNCH(combine_rows_kernel);
}

void combine_rows_backward(const float* dy, const float* x, const int* place, const float* gates, int T, int D, int S,
                           float* dx, float* dgates) {
    const int R = T * S;
    if (R == 0) return;
    combine_rows_backward_kernel<<<blocks_for(R, kWarps), kThreads, 0, stream()>>>(dy, x, place, gates, R, D, S, dx,
                                                                                   dgates);
    CUDA_CHECK_LAUNCH(combine_rows_backward_kernel);
}

void router_topk_backward(const float* dgates, const float* probs, const int* experts, const float* gates,
                          const int* offsets, float balance, int T, int E, int S, float* dlogits) {
    check_slots(E, S);
    if (T == 0) return;
    router_topk_backward_kernel<<<blocks_for(T, kTokens), kTokens, 0, stream()>>>(dgates, probs, experts, gates,
                                                                                  offsets, balance, T, E, S, dlogits);
    CUDA_CHECK_LAUNCH(router_topk_backward_kernel);
}

}  // namespace quads::kernels
