// Log-probabilities, their backward, and sampling: reference/log_softmax.hpp.
#include "reference/log_softmax.hpp"

#include "kernels/kernels.hpp"
#include "kernels/warp.cuh"
#include "reference/check.hpp"
#include "reference/exact_math.hpp"
#include "reference/philox.hpp"

namespace quads::kernels {
namespace {

void check_arguments(float temperature, int V) {
    check(V >= 1, "The vocabulary needs at least 1 token, but V is ", V, ".");
    check(temperature > 0.0f, "The temperature must be above 0, but it is ", temperature, ".");
}

// One warp per row; what a lane needs again it computes again, which is cheaper than keeping it.
__global__ void log_softmax_kernel(const float* logits, float temperature, int T, int V, float* logp, float* entropy) {
    const int t = global_warp();
    if (t >= T) return;
    const float* in = logits + static_cast<std::int64_t>(t) * V;
    float* out = logp + static_cast<std::int64_t>(t) * V;

    float largest = -HUGE_VALF;
    for (int v = lane_id(); v < V; v += kWarp) largest = fmaxf(largest, in[v] / temperature);
    largest = warp_max(largest);

    const auto shifted = [&](int v) { return in[v] / temperature - largest; };
    const float log_sum = exact_log(ascending_sum(V, [&](int v) { return exact_exp(shifted(v)); }));
    const auto log_probability = [&](int v) { return shifted(v) - log_sum; };
    const float negative_entropy =
        ascending_fma(V, [&](int v) { return make_float2(exact_exp(log_probability(v)), log_probability(v)); });
    for (int v = lane_id(); v < V; v += kWarp) out[v] = log_probability(v);
    if (lane_id() == 0) entropy[t] = -negative_entropy;
}

__global__ void log_softmax_backward_kernel(const float* logp, const float* weights, float temperature, int T, int V,
                                            float* dlogits) {
    const int t = global_warp();
    if (t >= T) return;
    const std::int64_t first = static_cast<std::int64_t>(t) * V;
    const float sum = ascending_sum(V, [&](int v) { return weights[first + v]; });
    for (int v = lane_id(); v < V; v += kWarp) {
        dlogits[first + v] = (weights[first + v] - exact_exp(logp[first + v]) * sum) / temperature;
    }
}

// One thread per sample.
__global__ void sample_kernel(const float* logp, const int* row, int N, int V, std::uint32_t seed, std::uint32_t step,
                              std::uint32_t first_sequence, std::uint32_t position, Report report, int* token,
                              float* token_logp) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    const float* in = logp + static_cast<std::int64_t>(row[n]) * V;
    const std::uint32_t sequence = first_sequence + static_cast<std::uint32_t>(n);
    const float u = uniform24(philox4x32_10({{step, sequence, position, 0}}, seed, 0).word[0]);

    int chosen = -1;
    float cumulative = 0.0f;
    for (int v = 0; v < V; ++v) {
        const float probability = exact_exp(in[v]);
        cumulative += probability;
        if (probability > 0.0f) chosen = v;
        if (u < cumulative) break;
    }
    if (chosen < 0) report.note(Trouble::no_token, row[n], 0, 0.0f);
    token[n] = max(chosen, 0);
    token_logp[n] = in[max(chosen, 0)];
}

}  // namespace

void log_softmax(const float* logits, float temperature, int T, int V, float* logp, float* entropy) {
    check_arguments(temperature, V);
    if (T == 0) return;
    log_softmax_kernel<<<blocks_for(T, kWarps), kThreads, 0, stream()>>>(logits, temperature, T, V, logp, entropy);
    CUDA_CHECK_LAUNCH(log_softmax_kernel);
}

void log_softmax_backward(const float* logp, const float* weights, float temperature, int T, int V, float* dlogits) {
    check_arguments(temperature, V);
    if (T == 0) return;
    log_softmax_backward_kernel<<<blocks_for(T, kWarps), kThreads, 0, stream()>>>(logp, weights, temperature, T, V,
                                                                                  dlogits);
    CUDA_CHECK_LAUNCH(log_softmax_backward_kernel);
}

void sample(const float* logp, const int* row, int N, int V, std::uint32_t seed, std::uint32_t step,
            std::uint32_t first_sequence, std::uint32_t position, int* token, float* token_logp) {
    if (N == 0) return;
    constexpr int kFew = 32;  // few samples a block, so that a small batch still meets many multiprocessors
    sample_kernel<<<blocks_for(N, kFew), kFew, 0, stream()>>>(logp, row, N, V, seed, step, first_sequence, position,
                                                            next_report(), token, token_logp);
    CUDA_CHECK_LAUNCH(sample_kernel);
}

}  // namespace quads::kernels
