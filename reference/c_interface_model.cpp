// The C interface: the layers of the model, sampling and GRPO.
#include <algorithm>
#include <vector>

#include "reference/attention.hpp"
#include "reference/c_interface.hpp"
#include "reference/log_softmax.hpp"
#include "reference/rmsnorm.hpp"
#include "reference/router.hpp"
#include "reference/swiglu.hpp"
#include "src/grpo.hpp"

namespace quads::c_interface {
namespace {

SequenceTree tree_of(int prompts, int prompt, int group, int response, int D, int H) {
    check_sizes({{"prompts", prompts, 0},
                 {"prompt", prompt, 1},
                 {"group", group, 1},
                 {"response", response, 0},
                 {"D", D, 1},
                 {"H", H, 1}});
    check(D % H == 0, "D is ", D, ", expected a multiple of the ", H, " heads.");
    return {prompts, prompt, group, response};
}

}  // namespace

extern "C" {

int quads_rmsnorm(const float* x, const float* g, int T, int D, float* h, float* rstd) {
    return guarded([&] {
        check_arrays(x, g, h, rstd);
        check_sizes({{"T", T, 0}});
        reference::rmsnorm(x, g, T, D, h, rstd);
    });
}

int quads_rmsnorm_backward(const float* dh, const float* x, const float* g, const float* rstd, int T, int D, float* dx,
                           float* dg) {
    return guarded([&] {
        check_arrays(dh, x, g, rstd, dx, dg);
        check_sizes({{"T", T, 0}});
        reference::rmsnorm_backward(dh, x, g, rstd, T, D, dx, dg);
    });
}

int quads_swiglu(const float* gate_up, int R, int F, float* m) {
    return guarded([&] {
        check_arrays(gate_up, m);
        check_sizes({{"R", R, 0}, {"F", F, 0}});
        reference::swiglu(gate_up, R, F, m);
    });
}

int quads_swiglu_backward(const float* dm, const float* gate_up, int R, int F, float* dgate_up) {
    return guarded([&] {
        check_arrays(dm, gate_up, dgate_up);
        check_sizes({{"R", R, 0}, {"F", F, 0}});
        reference::swiglu_backward(dm, gate_up, R, F, dgate_up);
    });
}

int quads_router_topk(const float* logits, const int* replay, int T, int E, int S, float* probs, int* experts,
                      float* gates) {
    return guarded([&] {
        check_arrays(logits, probs, experts, gates);
        check_sizes({{"T", T, 0}});
        reference::router_topk(logits, replay, T, E, S, probs, experts, gates);
    });
}

int quads_router_topk_backward(const float* dgates, const float* probs, const int* experts, const float* gates,
                               const int* offsets, float balance, int T, int E, int S, float* dlogits) {
    return guarded([&] {
        check_arrays(dgates, probs, experts, gates, offsets, dlogits);
        check_sizes({{"T", T, 0}, {"E", E, 1}, {"S", S, 1}});
        check_indices("experts", experts, std::int64_t{T} * S, E);
        reference::router_topk_backward(dgates, probs, experts, gates, offsets, balance, T, E, S, dlogits);
    });
}

int quads_route_rows(const int* experts, int T, int E, int S, int* offsets, int* source, int* place) {
    return guarded([&] {
        check_arrays(experts, offsets, source, place);
        check_sizes({{"T", T, 0}, {"E", E, 1}, {"S", S, 1}});
        reference::route_rows(experts, T, E, S, offsets, source, place);
    });
}

int quads_gather_rows(const float* x, const int* source, int T, int R, int D, float* y) {
    return guarded([&] {
        check_arrays(x, source, y);
        check_sizes({{"T", T, 0}, {"R", R, 0}, {"D", D, 1}});
        check_indices("source", source, R, T);
        reference::gather_rows(x, source, R, D, y);
    });
}

int quads_combine_rows(const float* x, const int* place, const float* gates, int T, int D, int S, float* y) {
    return guarded([&] {
        check_arrays(x, place, y);
        check_sizes({{"T", T, 0}, {"D", D, 1}, {"S", S, 1}});
        check_indices("place", place, std::int64_t{T} * S, T * S);
        reference::combine_rows(x, place, gates, T, D, S, y);
    });
}

int quads_combine_rows_backward(const float* dy, const float* x, const int* place, const float* gates, int T, int D,
                                int S, float* dx, float* dgates) {
    return guarded([&] {
        check_arrays(dy, x, place, gates, dx, dgates);
        check_sizes({{"T", T, 0}, {"D", D, 1}, {"S", S, 1}});
        check_indices("place", place, std::int64_t{T} * S, T * S);
        reference::combine_rows_backward(dy, x, place, gates, T, D, S, dx, dgates);
    });
}

int quads_attention(const float* q, const float* k, const float* v, int prompts, int prompt, int group, int response,
                    int D, int H, float* o) {
    return guarded([&] {
        check_arrays(q, k, v, o);
        const SequenceTree tree = tree_of(prompts, prompt, group, response, D, H);
        std::vector<int> rows(tree.rows());
        for (int row = 0; row < tree.rows(); ++row) rows[row] = row;
        reference::attention(q, k, v, rows.data(), tree, tree.rows(), D, H, o);
    });
}

int quads_attention_backward(const float* d_o, const float* q, const float* k, const float* v, int prompts, int prompt,
                             int group, int response, int D, int H, float* dqkv) {
    return guarded([&] {
        check_arrays(d_o, q, k, v, dqkv);
        reference::attention_backward(d_o, q, k, v, tree_of(prompts, prompt, group, response, D, H), D, H, dqkv);
    });
}

int quads_log_softmax(const float* logits, float temperature, int T, int V, float* logp, float* entropy) {
    return guarded([&] {
        check_arrays(logits, logp, entropy);
        check_sizes({{"T", T, 0}});
        reference::log_softmax(logits, temperature, T, V, logp, entropy);
    });
}

int quads_log_softmax_backward(const float* logp, const float* weights, float temperature, int T, int V,
                               float* dlogits) {
    return guarded([&] {
        check_arrays(logp, weights, dlogits);
        check_sizes({{"T", T, 0}});
        reference::log_softmax_backward(logp, weights, temperature, T, V, dlogits);
    });
}

int quads_sample(const float* logp, const int* row, int T, int N, int V, uint32_t seed, uint32_t step,
                 uint32_t first_sequence, uint32_t position, int* token, float* token_logp) {
    return guarded([&] {
        check_arrays(logp, row, token, token_logp);
        check_sizes({{"T", T, 0}, {"N", N, 0}, {"V", V, 1}});
        check_indices("row", row, N, T);
        reference::sample(logp, row, N, V, seed, step, first_sequence, position, token, token_logp);
    });
}

int quads_group_advantages(const float* rewards, int n, int group, float epsilon, float* advantages) {
    return guarded([&] {
        check_arrays(rewards, advantages);
        check_sizes({{"n", n, 0}, {"group", group, 1}});
        const std::vector<float> result = group_advantages({rewards, rewards + n}, group, epsilon);
        std::copy(result.begin(), result.end(), advantages);
    });
}

int quads_policy_gradient(const float* logp_trainer, const float* logp_rollout, const float* advantages,
                          const int* lengths, int sequences, int n, int tokens, int correction, float clip_low,
                          float clip_high, float tis_cap, float* gradient) {
    return guarded([&] {
        check_arrays(logp_trainer, logp_rollout, advantages, lengths, gradient);
        check_sizes({{"sequences", sequences, 0}, {"n", n, 0}, {"tokens", tokens, 1}});
        check_choice("correction", correction, 3);
        check_indices("lengths", lengths, sequences, n + 1);
        const std::size_t size = static_cast<std::size_t>(sequences) * n;
        TokenBatch batch{sequences, n, {}, {}, {}, {}, {}};
        batch.logp_trainer.assign(logp_trainer, logp_trainer + size);
        batch.logp_rollout.assign(logp_rollout, logp_rollout + size);
        batch.advantages.assign(advantages, advantages + sequences);
        batch.lengths.assign(lengths, lengths + sequences);
        GrpoConfig config;
        const Correction corrections[] = {Correction::rollout, Correction::none, Correction::tis};
        config.correction = corrections[correction];
        config.clip_low = clip_low;
        config.clip_high = clip_high;
        config.tis_cap = tis_cap;
        const std::vector<float> result = policy_gradient(batch, config, tokens);
        std::copy(result.begin(), result.end(), gradient);
    });
}

}  // extern "C"

}  // namespace quads::c_interface
