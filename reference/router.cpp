#include "reference/router.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "reference/check.hpp"
#include "reference/exact_math.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

constexpr int kRowGrain = 256;

void check_slots(int E, int S) {
    check(S >= 1 && S <= E, "A token goes to S = ", S, " of E = ", E, " experts; choose S from 1 to E.");
}

void softmax(const float* logits, int E, float* probs) {
    const float largest = *std::max_element(logits, logits + E);
    for (int e = 0; e < E; ++e) probs[e] = exact_exp(logits[e] - largest);
    float sum = 0.0f;
    for (int e = 0; e < E; ++e) sum += probs[e];
    for (int e = 0; e < E; ++e) probs[e] /= sum;
}

// S passes over the logits, each taking the largest that no earlier slot took; only a larger logit displaces an earlier
// expert, so equal logits go to the lower index.
void choose_experts(const float* logits, int E, int S, int* experts) {
    for (int s = 0; s < S; ++s) {
        int best = -1;
        for (int e = 0; e < E; ++e) {
            if (std::find(experts, experts + s, e) != experts + s) continue;
            if (best < 0 || logits[e] > logits[best]) best = e;
        }
        experts[s] = best;
    }
}

float chosen_sum(const float* probs, const int* experts, int S) {
    float sum = 0.0f;
    for (int s = 0; s < S; ++s) sum += probs[experts[s]];
    return sum;
}

}  // namespace

void router_topk(const float* logits, const int* replay, int T, int E, int S, float* probs, int* experts,
                 float* gates) {
    check_slots(E, S);
    parallel_for(T, kRowGrain, [=](int t) {
        const float* in = logits + std::size_t(t) * E;
        float* prob = probs + std::size_t(t) * E;
        int* chosen = experts + std::size_t(t) * S;
        softmax(in, E, prob);
        if (replay) {
            for (int s = 0; s < S; ++s) {
                chosen[s] = replay[std::size_t(t) * S + s];
                check(chosen[s] >= 0 && chosen[s] < E, "Replayed routing sends token ", t, " to expert ", chosen[s],
                      ", but experts are 0 .. ", E - 1, ".");
            }
        } else {
            choose_experts(in, E, S, chosen);
        }
        const float sum = chosen_sum(prob, chosen, S);
        for (int s = 0; s < S; ++s) gates[std::size_t(t) * S + s] = prob[chosen[s]] / sum;
    });
}

void route_rows(const int* experts, int T, int E, int S, int* offsets, int* source, int* place) {
    const int R = T * S;
    std::fill(offsets, offsets + E + 1, 0);
    for (int i = 0; i < R; ++i) {
        check(experts[i] >= 0 && experts[i] < E, "Token ", i / S, " goes to expert ", experts[i],
              ", but experts are 0 .. ", E - 1, ".");
        ++offsets[experts[i] + 1];
    }
    for (int e = 0; e < E; ++e) offsets[e + 1] += offsets[e];

    std::vector<int> next(offsets, offsets + E);
    for (int i = 0; i < R; ++i) {
        place[i] = next[experts[i]]++;
        source[place[i]] = i / S;
    }
}

void gather_rows(const float* x, const int* source, int R, int D, float* y) {
    parallel_for(R, kRowGrain, [=](int r) { std::copy_n(x + std::size_t(source[r]) * D, D, y + std::size_t(r) * D); });
}

void combine_rows(const float* x, const int* place, const float* gates, int T, int D, int S, float* y) {
    parallel_for(T, kRowGrain, [=](int t) {
        float* out = y + std::size_t(t) * D;
        std::fill_n(out, D, 0.0f);
        for (int s = 0; s < S; ++s) {
            const std::size_t slot = std::size_t(t) * S + s;
            const float* row = x + std::size_t(place[slot]) * D;
            const float gate = gates ? gates[slot] : 1.0f;
            for (int d = 0; d < D; ++d) out[d] = fmaf(gate, row[d], out[d]);
        }
    });
}

void combine_rows_backward(const float* dy, const float* x, const int* place, const float* gates, int T, int D, int S,
                           float* dx, float* dgates) {
    parallel_for(T, kRowGrain, [=](int t) {
        const float* gradient = dy + std::size_t(t) * D;
        for (int s = 0; s < S; ++s) {
            const std::size_t slot = std::size_t(t) * S + s;
            const float* row = x + std::size_t(place[slot]) * D;
            float* out = dx + std::size_t(place[slot]) * D;
            const float gate = gates[slot];
            for (int d = 0; d < D; ++d) out[d] = gate * gradient[d];
            float sum = 0.0f;
            for (int d = 0; d < D; ++d) sum = fmaf(gradient[d], row[d], sum);
            dgates[slot] = sum;
        }
    });
}

void router_topk_backward(const float* dgates, const float* probs, const int* experts, const float* gates,
                          const int* offsets, float balance, int T, int E, int S, float* dlogits) {
    check_slots(E, S);
    std::vector<float> load(E);  // gradient of the load-balance loss, the same in every row
    for (int e = 0; e < E; ++e) {
        const float share = static_cast<float>(offsets[e + 1] - offsets[e]) / static_cast<float>(T);
        load[e] = ((balance * static_cast<float>(E)) * share) / static_cast<float>(T);
    }
    parallel_ranges(T, kRowGrain, [=, &load](int begin, int end) {
        std::vector<float> dp(E);
        for (int t = begin; t < end; ++t) {
            const float* prob = probs + std::size_t(t) * E;
            const int* chosen = experts + std::size_t(t) * S;
            const float* gate = gates + std::size_t(t) * S;
            const float* dgate = dgates + std::size_t(t) * S;
            float* out = dlogits + std::size_t(t) * E;

            dp = load;
            const float z = chosen_sum(prob, chosen, S);
            float gate_mean = 0.0f;
            for (int s = 0; s < S; ++s) gate_mean = fmaf(dgate[s], gate[s], gate_mean);
            for (int s = 0; s < S; ++s) dp[chosen[s]] += (dgate[s] - gate_mean) / z;

            float prob_mean = 0.0f;
            for (int e = 0; e < E; ++e) prob_mean = fmaf(prob[e], dp[e], prob_mean);
            for (int e = 0; e < E; ++e) out[e] = prob[e] * (dp[e] - prob_mean);
        }
    });
}

}  // namespace quads::reference
