#include "reference/log_softmax.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "reference/check.hpp"
#include "reference/exact_math.hpp"
#include "reference/parallel.hpp"
#include "reference/philox.hpp"

namespace quads::reference {
namespace {

constexpr int kRowGrain = 256;

void check_arguments(float temperature, int V) {
    check(V >= 1, "The vocabulary needs at least 1 token, but V is ", V, ".");
    check(temperature > 0.0f, "The temperature must be above 0, but it is ", temperature, ".");
}

}  // namespace

void log_softmax(const float* logits, float temperature, int T, int V, float* logp, float* entropy) {
    check_arguments(temperature, V);
    parallel_ranges(T, kRowGrain, [=](int begin, int end) {
        std::vector<float> prob(V);
        for (int t = begin; t < end; ++t) {
            const float* in = logits + std::size_t(t) * V;
            float* z = logp + std::size_t(t) * V;
            for (int v = 0; v < V; ++v) z[v] = in[v] / temperature;
            const float largest = *std::max_element(z, z + V);

            for (int v = 0; v < V; ++v) {
                z[v] -= largest;
                prob[v] = exact_exp(z[v]);
            }
            float sum = 0.0f;
            for (int v = 0; v < V; ++v) sum += prob[v];
            const float log_sum = exact_log(sum);

            for (int v = 0; v < V; ++v) {
                z[v] -= log_sum;
                prob[v] = exact_exp(z[v]);
            }
            float negative_entropy = 0.0f;
            for (int v = 0; v < V; ++v) negative_entropy = fmaf(prob[v], z[v], negative_entropy);
            entropy[t] = -negative_entropy;
        }
    });
}

void log_softmax_backward(const float* logp, const float* weights, float temperature, int T, int V, float* dlogits) {
    check_arguments(temperature, V);
    parallel_for(T, kRowGrain, [=](int t) {
        const float* in = logp + std::size_t(t) * V;
        const float* weight = weights + std::size_t(t) * V;
        float* out = dlogits + std::size_t(t) * V;
        float sum = 0.0f;
        for (int v = 0; v < V; ++v) sum += weight[v];
        for (int v = 0; v < V; ++v) out[v] = (weight[v] - exact_exp(in[v]) * sum) / temperature;
    });
}

void sample(const float* logp, const int* row, int N, int V, std::uint32_t seed, std::uint32_t step,
            std::uint32_t first_sequence, std::uint32_t position, int* token, float* token_logp) {
    parallel_for(N, kRowGrain, [=](int n) {
        const float* in = logp + std::size_t(row[n]) * V;
        const std::uint32_t sequence = first_sequence + static_cast<std::uint32_t>(n);
        const float u = uniform24(philox4x32_10({{step, sequence, position, 0}}, seed, 0).word[0]);

        int chosen = -1;
        float cumulative = 0.0f;
        for (int v = 0; v < V; ++v) {
            const float prob = exact_exp(in[v]);
            cumulative += prob;
            if (prob > 0.0f) chosen = v;
            if (u < cumulative) break;
        }
        if (chosen < 0) fail_no_token(row[n]);
        token[n] = chosen;
        token_logp[n] = in[chosen];
    });
}

void fail_no_token(int row) { fail("No token can be drawn from row ", row, ": every probability is 0 or NaN."); }

}  // namespace quads::reference
