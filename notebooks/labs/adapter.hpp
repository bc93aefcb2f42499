// What the tests of the labs call: the student's functions, or the reference where LAB_SOLUTION is set. To test other
// code, e.g. a course's own solution, change the right-hand sides here; the tests and the stubs stay as they are.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "notebooks/labs/labs.hpp"
#include "reference/codec.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_w4a4.hpp"
#include "reference/nvfp4.hpp"
#include "reference/quads_reference.h"
#include "reference/router.hpp"

namespace lab {

using Bytes = const std::uint8_t*;

inline bool solution() {
    static const bool set = std::getenv("LAB_SOLUTION") != nullptr;
    return set;
}

inline quads::Nvfp4 view(Bytes codes, Bytes scales, const float* outer, quads::OuterScale kind) {
    return {const_cast<std::uint8_t*>(codes), const_cast<std::uint8_t*>(scales), const_cast<float*>(outer), kind};
}
inline quads::Nvfp4 rows(Bytes codes, Bytes scales, const float* outer) {
    return view(codes, scales, outer, quads::OuterScale::row);
}
inline quads::Nvfp4 matrix(Bytes codes, Bytes scales, const float* outer) {
    return view(codes, scales, outer, quads::OuterScale::group);
}

// One group of M rows.
struct Dense {
    explicit Dense(int M) : offsets{0, M} {}
    operator quads::Groups() const { return {offsets, 1}; }
    int offsets[2];
};

// Lab 01
inline std::uint8_t e2m1_encode(float x) { return solution() ? quads::e2m1_encode(x) : student::e2m1_encode(x); }
inline float e2m1_decode(std::uint8_t code) {
    return solution() ? quads::e2m1_decode(code) : student::e2m1_decode(code);
}
inline std::uint8_t e4m3_encode(float x) { return solution() ? quads::e4m3_encode(x) : student::e4m3_encode(x); }
inline float e4m3_decode(std::uint8_t code) {
    return solution() ? quads::e4m3_decode(code) : student::e4m3_decode(code);
}
inline void pack_row(Bytes codes, int K, std::uint8_t* packed) {
    if (!solution()) return student::pack_row(codes, K, packed);
    std::fill_n(packed, quads::code_bytes_of(K), std::uint8_t{0});
    quads_pack_codes(codes, 1, K, packed);
}

// Lab 02
inline void quantize_row(const float* x, int K, std::uint8_t* codes, std::uint8_t* scales, float* outer) {
    if (!solution()) return student::quantize_row(x, K, codes, scales, outer);
    quads::reference::quantize_nvfp4(x, Dense(1), 1, K, rows(codes, scales, outer));
}

// Lab 03
inline float block_term(Bytes x, std::uint8_t x_scale, Bytes w, std::uint8_t w_scale) {
    if (!solution()) return student::block_term(x, x_scale, w, w_scale);
    const float one = 1.0f;
    float y;
    quads::reference::gemm_w4a4(rows(x, &x_scale, &one), matrix(w, &w_scale, &one), Dense(1), 1, 1, quads::kBlock, &y);
    return y;
}
inline void gemm_w4a4(Bytes x_codes, Bytes x_scales, const float* x_outer, Bytes w_codes, Bytes w_scales,
                      const float* w_outer, int M, int N, int K, float* y) {
    if (!solution()) return student::gemm_w4a4(x_codes, x_scales, x_outer, w_codes, w_scales, w_outer, M, N, K, y);
    quads::reference::gemm_w4a4(rows(x_codes, x_scales, x_outer), matrix(w_codes, w_scales, w_outer), Dense(M), M, N, K,
                                y);
}

// Lab 04
inline void quantize_residual(const float* x, Bytes codes, Bytes scales, const float* outer, int M, int K, float ratio,
                              std::uint8_t* residual_codes, std::uint8_t* residual_scales) {
    if (!solution()) {
        return student::quantize_residual(x, codes, scales, outer, M, K, ratio, residual_codes, residual_scales);
    }
    quads::reference::quantize_nvfp4_residual(x, rows(codes, scales, outer), Dense(M), M, K, ratio,
                                              quads::ResidualSelection::batch,
                                              rows(residual_codes, residual_scales, nullptr));
}
inline void gemm_w4a4_residual(Bytes x_codes, Bytes x_scales, const float* x_outer, Bytes residual_codes,
                               Bytes residual_scales, Bytes w_codes, Bytes w_scales, const float* w_outer, int M, int N,
                               int K, float* y) {
    if (!solution()) {
        return student::gemm_w4a4_residual(x_codes, x_scales, x_outer, residual_codes, residual_scales, w_codes,
                                           w_scales, w_outer, M, N, K, y);
    }
    quads::reference::gemm_w4a4_residual(rows(x_codes, x_scales, x_outer),
                                         rows(residual_codes, residual_scales, nullptr),
                                         matrix(w_codes, w_scales, w_outer), Dense(M), M, N, K, y);
}

// Lab 05
inline void router_topk(const float* logits, int T, int E, int S, float* probs, int* experts, float* gates) {
    if (!solution()) return student::router_topk(logits, T, E, S, probs, experts, gates);
    quads::reference::router_topk(logits, nullptr, T, E, S, probs, experts, gates);
}
inline void route_rows(const int* experts, int T, int E, int S, int* offsets, int* source, int* place) {
    if (!solution()) return student::route_rows(experts, T, E, S, offsets, source, place);
    quads::reference::route_rows(experts, T, E, S, offsets, source, place);
}
inline void grouped_gemm(const float* x, const float* w, const int* offsets, int E, int M, int N, int K, float* y) {
    if (!solution()) return student::grouped_gemm(x, w, offsets, E, M, N, K, y);
    quads::reference::gemm_bf16(x, w, nullptr, {offsets, E}, M, N, K, y);
}

// Lab 06
inline void backward_input(const float* dy, const float* w, float w_outer, int M, int N, int K, float* dx) {
    if (!solution()) return student::backward_input(dy, w, w_outer, M, N, K, dx);
    quads::reference::gemm_bf16_backward_input(dy, w, &w_outer, Dense(M), M, N, K, dx);
}
inline void backward_weight(const float* dy, const float* x, int M, int N, int K, float* dw) {
    if (!solution()) return student::backward_weight(dy, x, M, N, K, dw);
    quads::reference::gemm_bf16_backward_weight(dy, x, Dense(M), M, N, K, dw);
}

// Lab 07
inline void group_advantages(const float* rewards, int n, int group, float epsilon, float* advantages) {
    if (!solution()) return student::group_advantages(rewards, n, group, epsilon, advantages);
    quads_group_advantages(rewards, n, group, epsilon, advantages);
}
inline void policy_gradient(const float* logp_trainer, const float* logp_rollout, const float* advantages,
                            const int* lengths, int sequences, int n, int tokens, float clip_low, float clip_high,
                            float* gradient) {
    if (!solution()) {
        return student::policy_gradient(logp_trainer, logp_rollout, advantages, lengths, sequences, n, tokens, clip_low,
                                        clip_high, gradient);
    }
    quads_policy_gradient(logp_trainer, logp_rollout, advantages, lengths, sequences, n, tokens,
                          QUADS_CORRECTION_ROLLOUT, clip_low, clip_high, 0.0f, gradient);
}

}  // namespace lab
