// Router: a correct start, one thread per token. Make it yours, then: make verify OP=router_topk KERNEL=this_file
#include "reference/exact_math.hpp"
#include "tests/verify/kernel.h"

// The largest logit that no earlier slot took; of equal ones, the first.
__device__ int next_expert(const float* logits, int E, const int* taken, int slots) {
    int best = -1;
    for (int e = 0; e < E; ++e) {
        bool free = true;
        for (int s = 0; s < slots; ++s) free = free && taken[s] != e;
        if (free && (best < 0 || logits[e] > logits[best])) best = e;
    }
    return best;
}

__global__ void route(const float* logits, int T, int E, int S, float* probs, int* experts, float* gates) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= T) return;
    logits += t * E, probs += t * E, experts += t * S, gates += t * S;
    float largest = logits[0], sum = 0.0f, chosen = 0.0f;
    for (int e = 1; e < E; ++e) largest = fmaxf(largest, logits[e]);
    for (int e = 0; e < E; ++e) sum += probs[e] = quads::exact_exp(logits[e] - largest);
    for (int e = 0; e < E; ++e) probs[e] /= sum;
    for (int s = 0; s < S; ++s) {
        experts[s] = next_expert(logits, E, experts, s);
        chosen += probs[experts[s]];
    }
    for (int s = 0; s < S; ++s) gates[s] = probs[experts[s]] / chosen;
}

void kernel_router_topk(const float* logits, int T, int E, int S, float* probs, int* experts, float* gates) {
    route<<<(T + 31) / 32, 32>>>(logits, T, E, S, probs, experts, gates);
}
