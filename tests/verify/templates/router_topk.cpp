// Router: a correct start. Make it yours, then: make verify OP=router_topk KERNEL=this_file
#include <algorithm>

#include "reference/exact_math.hpp"
#include "tests/verify/kernel.h"

namespace {

// The largest logit that no earlier slot took; of equal ones, the first.
int next_expert(const float* logits, int E, const int* taken, int slots) {
    int best = -1;
    for (int e = 0; e < E; ++e) {
        const bool free = std::find(taken, taken + slots, e) == taken + slots;
        if (free && (best < 0 || logits[e] > logits[best])) best = e;
    }
    return best;
}

}  // namespace

void kernel_router_topk(const float* logits, int T, int E, int S, float* probs, int* experts, float* gates) {
    for (int t = 0; t < T; ++t, logits += E, probs += E, experts += S, gates += S) {
        const float largest = *std::max_element(logits, logits + E);
        float sum = 0.0f, chosen = 0.0f;
        for (int e = 0; e < E; ++e) sum += probs[e] = quads::exact_exp(logits[e] - largest);
        for (int e = 0; e < E; ++e) probs[e] /= sum;
        for (int s = 0; s < S; ++s) {
            experts[s] = next_expert(logits, E, experts, s);
            chosen += probs[experts[s]];
        }
        for (int s = 0; s < S; ++s) gates[s] = probs[experts[s]] / chosen;
    }
}
