// The C interface gives the bits of the operations behind it and refuses what they cannot take. That it compiles as C
// and loads as a library: tests/c_library.sh.
#include <cstring>
#include <functional>

#include "reference/attention.hpp"
#include "reference/codec.hpp"
#include "reference/exact_math.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_fp8.hpp"
#include "reference/gemm_w4a4.hpp"
#include "reference/log_softmax.hpp"
#include "reference/nvfp4.hpp"
#include "reference/oracles.hpp"
#include "reference/quads_reference.h"
#include "reference/rmsnorm.hpp"
#include "reference/router.hpp"
#include "reference/swiglu.hpp"
#include "src/grpo.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

using namespace quads;

namespace {

using Bytes = std::vector<std::uint8_t>;

// Sizes of the tests: E groups of M rows, one of them empty; K is not a multiple of 16.
constexpr int M = 9, N = 5, K = 21, E = 3;
const int kOffsets[] = {0, 4, 4, M};
const Groups kGroups{kOffsets, E};

struct Packed {
    Bytes codes, scales;
    Floats outer;
    OuterScale kind;
    Packed(int rows, int outers, OuterScale kind)
        : codes(rows * code_bytes_of(K), 0xAA), scales(rows * blocks_of(K), 0xAA), outer(outers, -1.0f), kind(kind) {}
    Nvfp4 view() { return {codes.data(), scales.data(), outer.data(), kind}; }
};

void require_same(const Packed& a, const Packed& b) {
    REQUIRE_SAME_BITS(a.codes, b.codes);
    REQUIRE_SAME_BITS(a.scales, b.scales);
    REQUIRE_SAME_BITS(a.outer, b.outer);
}

// Quantised x (M, K) and w (E N, K) for the GEMMs.
struct Operands {
    Floats x = random_floats(M * K, 1), w = random_floats(E * N * K, 2);
    Packed xq{M, M, OuterScale::row}, wq{E * N, E, OuterScale::group}, rq{M, M, OuterScale::row};
    Operands() {
        const int w_offsets[] = {0, N, 2 * N, 3 * N};
        reference::quantize_nvfp4(x.data(), kGroups, M, K, xq.view());
        reference::quantize_nvfp4(w.data(), {w_offsets, E}, E * N, K, wq.view());
        reference::quantize_nvfp4_residual(x.data(), xq.view(), kGroups, M, K, 0.5f, ResidualSelection::batch,
                                           rq.view());
    }
};

std::string refused(int code) { return code == QUADS_ERROR_ARGUMENT ? quads_error_message() : "not refused"; }
bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("c interface: codecs and exact functions", "[c_interface]") {
    const Floats x = random_floats(200, 3, 500.0f);
    const int n = static_cast<int>(x.size());
    Bytes codes(n), fp8(n);
    std::vector<std::uint16_t> bf16(n);
    Floats y(n);
    REQUIRE(quads_e2m1_encode(x.data(), n, codes.data()) == QUADS_OK);
    REQUIRE(quads_e4m3_encode(x.data(), n, fp8.data()) == QUADS_OK);
    REQUIRE(quads_bf16_encode(x.data(), n, bf16.data()) == QUADS_OK);
    const auto require = [&](int code, const std::function<float(int)>& expected) {
        REQUIRE(code == QUADS_OK);
        Floats values(n);
        for (int i = 0; i < n; ++i) values[i] = expected(i);
        REQUIRE_SAME_BITS(y, values);
    };
    require(quads_e2m1_decode(codes.data(), n, y.data()), [&](int i) { return e2m1_decode(e2m1_encode(x[i])); });
    require(quads_e4m3_decode(fp8.data(), n, y.data()), [&](int i) { return e4m3_decode(e4m3_encode(x[i])); });
    require(quads_bf16_decode(bf16.data(), n, y.data()), [&](int i) { return bf16_round(x[i]); });
    require(quads_bf16_round(x.data(), n, y.data()), [&](int i) { return bf16_round(x[i]); });
    require(quads_exact_exp(x.data(), n, y.data()), [&](int i) { return exact_exp(x[i]); });
    require(quads_exact_sigmoid(x.data(), n, y.data()), [&](int i) { return exact_sigmoid(x[i]); });
    require(quads_exact_silu(x.data(), n, y.data()), [&](int i) { return exact_silu(x[i]); });
    Floats positive = x;
    for (float& value : positive) value = std::fabs(value);
    require(quads_exact_log(positive.data(), n, y.data()), [&](int i) { return exact_log(positive[i]); });
    require(quads_exact_rsqrt(positive.data(), n, y.data()), [&](int i) { return exact_rsqrt(positive[i]); });

    Bytes packed(2 * 2), unpacked(2 * 3);
    const Bytes three_columns{1, 2, 3, 15, 8, 7};
    REQUIRE(quads_pack_codes(three_columns.data(), 2, 3, packed.data()) == QUADS_OK);
    REQUIRE_SAME_BITS(packed, (Bytes{0x21, 0x03, 0x8F, 0x07}));
    REQUIRE(quads_unpack_codes(packed.data(), 2, 3, unpacked.data()) == QUADS_OK);
    REQUIRE_SAME_BITS(unpacked, three_columns);
}

TEST_CASE("c interface: NVFP4 and FP8 quantisers", "[c_interface]") {
    const Floats x = random_floats(M * K, 4);
    Floats y(M * K), expected(M * K);
    for (const OuterScale kind : {OuterScale::row, OuterScale::group}) {
        const int outers = kind == OuterScale::row ? M : E,
                  outer_scale = kind == OuterScale::row ? QUADS_OUTER_ROW : QUADS_OUTER_GROUP;
        Packed a(M, outers, kind), b(M, outers, kind), ra(M, outers, kind), rb(M, outers, kind);
        REQUIRE(quads_quantize_nvfp4(x.data(), kOffsets, E, M, K, outer_scale, a.codes.data(), a.scales.data(),
                                     a.outer.data()) == 0);
        reference::quantize_nvfp4(x.data(), kGroups, M, K, b.view());
        require_same(a, b);
        for (const int selection : {QUADS_SELECT_BATCH, QUADS_SELECT_TOKEN, QUADS_SELECT_RANDOM}) {
            REQUIRE(quads_quantize_nvfp4_residual(x.data(), a.codes.data(), a.scales.data(), a.outer.data(), kOffsets,
                                                  E, M, K, outer_scale, 0.3f, selection, ra.codes.data(),
                                                  ra.scales.data()) == 0);
            reference::quantize_nvfp4_residual(x.data(), b.view(), kGroups, M, K, 0.3f,
                                               static_cast<ResidualSelection>(selection), rb.view());
            require_same(ra, rb);
        }
        for (const bool with_outer : {false, true}) {
            REQUIRE(quads_dequantize_nvfp4(a.codes.data(), a.scales.data(), a.outer.data(), kOffsets, E, M, K,
                                           outer_scale, with_outer, y.data()) == 0);
            reference::dequantize_nvfp4(b.view(), kGroups, M, K, with_outer, expected.data());
            REQUIRE_SAME_BITS(y, expected);
        }
        Bytes fp8(M * K), fp8_expected(M * K);
        Floats outer(outers), outer_expected(outers);
        REQUIRE(quads_quantize_fp8(x.data(), kOffsets, E, M, K, outer_scale, fp8.data(), outer.data()) == 0);
        reference::quantize_fp8(x.data(), kGroups, M, K, {fp8_expected.data(), outer_expected.data(), kind});
        REQUIRE_SAME_BITS(fp8, fp8_expected);
        REQUIRE_SAME_BITS(outer, outer_expected);
        REQUIRE(quads_dequantize_fp8(fp8.data(), outer.data(), kOffsets, E, M, K, outer_scale, 1, y.data()) == 0);
        reference::dequantize_fp8({fp8.data(), outer.data(), kind}, kGroups, M, K, true, expected.data());
        REQUIRE_SAME_BITS(y, expected);
    }
    Ints flips(M), flips_expected(M);
    const Floats other = random_floats(M * K, 5);
    REQUIRE(quads_count_code_flips(x.data(), other.data(), M, K, flips.data()) == 0);
    reference::count_code_flips(x.data(), other.data(), M, K, flips_expected.data());
    REQUIRE_SAME_BITS(flips, flips_expected);
}

TEST_CASE("c interface: GEMMs, grouped, and their oracles", "[c_interface]") {
    Operands o;
    Floats y(M * N), expected(M * N);
    std::uint8_t *xc = o.xq.codes.data(), *xs = o.xq.scales.data(), *wc = o.wq.codes.data(), *ws = o.wq.scales.data();
    std::uint8_t *rc = o.rq.codes.data(), *rs = o.rq.scales.data();
    REQUIRE(quads_gemm_w4a4(xc, xs, o.xq.outer.data(), QUADS_OUTER_ROW, wc, ws, o.wq.outer.data(), kOffsets, E, M, N, K,
                            y.data()) == 0);
    reference::gemm_w4a4(o.xq.view(), o.wq.view(), kGroups, M, N, K, expected.data());
    REQUIRE_SAME_BITS(y, expected);
    REQUIRE(quads_gemm_w4a4_residual(xc, xs, o.xq.outer.data(), QUADS_OUTER_ROW, rc, rs, wc, ws, o.wq.outer.data(),
                                     kOffsets, E, M, N, K, y.data()) == 0);
    reference::gemm_w4a4_residual(o.xq.view(), o.rq.view(), o.wq.view(), kGroups, M, N, K, expected.data());
    REQUIRE_SAME_BITS(y, expected);
    REQUIRE(quads_gemm_w4a4_tensor_core(xc, xs, o.xq.outer.data(), QUADS_OUTER_ROW, wc, ws, o.wq.outer.data(), kOffsets,
                                        E, M, N, K, y.data()) == 0);
    reference::gemm_w4a4_tensor_core(o.xq.view(), o.wq.view(), kGroups, M, N, K, expected.data());
    REQUIRE_SAME_BITS(y, expected);
    std::vector<std::int64_t> sum(M * N), magnitude(M * N), sum_expected(M * N), magnitude_expected(M * N);
    for (const bool residual : {false, true}) {
        const Nvfp4 second = o.rq.view();
        REQUIRE(quads_gemm_w4a4_exact(xc, xs, residual ? rc : nullptr, residual ? rs : nullptr, wc, ws, kOffsets, E, M,
                                      N, K, sum.data(), magnitude.data()) == 0);
        reference::gemm_w4a4_exact(o.xq.view(), residual ? &second : nullptr, o.wq.view(), kGroups, M, N, K,
                                   sum_expected.data(), magnitude_expected.data());
        REQUIRE_SAME_BITS(sum, sum_expected);
        REQUIRE_SAME_BITS(magnitude, magnitude_expected);
    }

    const Floats x = nearest_bf16(o.x), w = nearest_bf16(o.w), dy = random_floats(M * N, 6), outer{0.5f, 2.0f, 3.0f};
    Floats dx(M * K), dx_expected(M * K), dw(E * N * K), dw_expected(E * N * K);
    for (const float* w_outer : {static_cast<const float*>(nullptr), outer.data()}) {
        REQUIRE(quads_gemm_bf16(x.data(), w.data(), w_outer, kOffsets, E, M, N, K, y.data()) == 0);
        reference::gemm_bf16(x.data(), w.data(), w_outer, kGroups, M, N, K, expected.data());
        REQUIRE_SAME_BITS(y, expected);
        REQUIRE(quads_gemm_bf16_tensor_core(x.data(), w.data(), w_outer, kOffsets, E, M, N, K, y.data()) == 0);
        reference::gemm_bf16_tensor_core(x.data(), w.data(), w_outer, kGroups, M, N, K, expected.data());
        REQUIRE_SAME_BITS(y, expected);
        REQUIRE(quads_gemm_bf16_backward_input(dy.data(), w.data(), w_outer, kOffsets, E, M, N, K, dx.data()) == 0);
        reference::gemm_bf16_backward_input(dy.data(), w.data(), w_outer, kGroups, M, N, K, dx_expected.data());
        REQUIRE_SAME_BITS(dx, dx_expected);
    }
    REQUIRE(quads_gemm_bf16_backward_weight(dy.data(), x.data(), kOffsets, E, M, N, K, dw.data()) == 0);
    reference::gemm_bf16_backward_weight(dy.data(), x.data(), kGroups, M, N, K, dw_expected.data());
    REQUIRE_SAME_BITS(dw, dw_expected);

    Bytes x8(M * K), w8(E * N * K);
    Floats x8_outer(M), w8_outer(E);
    const int w_offsets[] = {0, N, 2 * N, 3 * N};
    reference::quantize_fp8(x.data(), kGroups, M, K, {x8.data(), x8_outer.data(), OuterScale::row});
    reference::quantize_fp8(w.data(), {w_offsets, E}, E * N, K, {w8.data(), w8_outer.data(), OuterScale::group});
    REQUIRE(quads_gemm_fp8(x8.data(), x8_outer.data(), QUADS_OUTER_ROW, w8.data(), w8_outer.data(), kOffsets, E, M, N,
                           K, y.data()) == 0);
    reference::gemm_fp8({x8.data(), x8_outer.data(), OuterScale::row}, {w8.data(), w8_outer.data(), OuterScale::group},
                        kGroups, M, N, K, expected.data());
    REQUIRE_SAME_BITS(y, expected);
}

TEST_CASE("c interface: norm, activation, router", "[c_interface]") {
    constexpr int T = 6, D = 8, S = 2, experts_count = 4, F = 4;
    const Floats x = random_floats(T * D, 7), g = random_floats(D, 8), dh = random_floats(T * D, 9);
    Floats a(T * D), b(T * D), rstd_a(T), rstd_b(T), dg_a(D), dg_b(D);
    REQUIRE(quads_rmsnorm(x.data(), g.data(), T, D, a.data(), rstd_a.data()) == 0);
    reference::rmsnorm(x.data(), g.data(), T, D, b.data(), rstd_b.data());
    REQUIRE_SAME_BITS(a, b);
    REQUIRE_SAME_BITS(rstd_a, rstd_b);
    REQUIRE(quads_rmsnorm_backward(dh.data(), x.data(), g.data(), rstd_a.data(), T, D, a.data(), dg_a.data()) == 0);
    reference::rmsnorm_backward(dh.data(), x.data(), g.data(), rstd_b.data(), T, D, b.data(), dg_b.data());
    REQUIRE_SAME_BITS(a, b);
    REQUIRE_SAME_BITS(dg_a, dg_b);
    Floats m_a(T * F), m_b(T * F);
    REQUIRE(quads_swiglu(x.data(), T, F, m_a.data()) == 0);
    reference::swiglu(x.data(), T, F, m_b.data());
    REQUIRE_SAME_BITS(m_a, m_b);
    REQUIRE(quads_swiglu_backward(m_a.data(), x.data(), T, F, a.data()) == 0);
    reference::swiglu_backward(m_b.data(), x.data(), T, F, b.data());
    REQUIRE_SAME_BITS(a, b);

    const Floats logits = random_floats(T * experts_count, 10), dgates = random_floats(T * S, 11);
    Floats probs_a(T * experts_count), probs_b(T * experts_count), gates_a(T * S), gates_b(T * S);
    Ints chosen_a(T * S), chosen_b(T * S), offsets(experts_count + 1), source(T * S), place(T * S);
    REQUIRE(quads_router_topk(logits.data(), nullptr, T, experts_count, S, probs_a.data(), chosen_a.data(),
                              gates_a.data()) == 0);
    reference::router_topk(logits.data(), nullptr, T, experts_count, S, probs_b.data(), chosen_b.data(),
                           gates_b.data());
    REQUIRE_SAME_BITS(probs_a, probs_b);
    REQUIRE_SAME_BITS(chosen_a, chosen_b);
    REQUIRE_SAME_BITS(gates_a, gates_b);
    REQUIRE(quads_route_rows(chosen_a.data(), T, experts_count, S, offsets.data(), source.data(), place.data()) == 0);
    for (int t = 0; t < T; ++t) REQUIRE(source[place[t * S]] == t);
    Floats rows_a(T * S * D), rows_b(T * S * D), dgates_a(T * S), dgates_b(T * S);
    REQUIRE(quads_gather_rows(x.data(), source.data(), T, T * S, D, rows_a.data()) == 0);
    reference::gather_rows(x.data(), source.data(), T * S, D, rows_b.data());
    REQUIRE_SAME_BITS(rows_a, rows_b);
    for (const float* gates : {static_cast<const float*>(nullptr), static_cast<const float*>(gates_a.data())}) {
        REQUIRE(quads_combine_rows(rows_a.data(), place.data(), gates, T, D, S, a.data()) == 0);
        reference::combine_rows(rows_b.data(), place.data(), gates, T, D, S, b.data());
        REQUIRE_SAME_BITS(a, b);
    }
    REQUIRE(quads_combine_rows_backward(dh.data(), rows_b.data(), place.data(), gates_a.data(), T, D, S, rows_a.data(),
                                        dgates_a.data()) == 0);
    Floats drows(T * S * D);
    reference::combine_rows_backward(dh.data(), rows_b.data(), place.data(), gates_a.data(), T, D, S, drows.data(),
                                     dgates_b.data());
    REQUIRE_SAME_BITS(rows_a, drows);
    REQUIRE_SAME_BITS(dgates_a, dgates_b);
    Floats dlogits_a(T * experts_count), dlogits_b(T * experts_count);
    REQUIRE(quads_router_topk_backward(dgates.data(), probs_a.data(), chosen_a.data(), gates_a.data(), offsets.data(),
                                       0.1f, T, experts_count, S, dlogits_a.data()) == 0);
    reference::router_topk_backward(dgates.data(), probs_a.data(), chosen_a.data(), gates_a.data(), offsets.data(),
                                    0.1f, T, experts_count, S, dlogits_b.data());
    REQUIRE_SAME_BITS(dlogits_a, dlogits_b);
}

TEST_CASE("c interface: attention, log-softmax, sampling", "[c_interface]") {
    const SequenceTree tree{2, 3, 2, 2};
    const int T = tree.rows(), D = 8, H = 2, V = 7;
    const Floats q = random_bf16(T * D, 12), k = random_bf16(T * D, 13), v = random_bf16(T * D, 14),
                 d_o = random_floats(T * D, 15);
    Ints rows(T);
    for (int t = 0; t < T; ++t) rows[t] = t;
    Floats a(T * D), b(T * D), dqkv_a(3 * T * D), dqkv_b(3 * T * D);
    REQUIRE(quads_attention(q.data(), k.data(), v.data(), tree.prompts, tree.prompt, tree.group, tree.response, D, H,
                            a.data()) == 0);
    reference::attention(q.data(), k.data(), v.data(), rows.data(), tree, T, D, H, b.data());
    REQUIRE_SAME_BITS(a, b);
    REQUIRE(quads_attention_backward(d_o.data(), q.data(), k.data(), v.data(), tree.prompts, tree.prompt, tree.group,
                                     tree.response, D, H, dqkv_a.data()) == 0);
    reference::attention_backward(d_o.data(), q.data(), k.data(), v.data(), tree, D, H, dqkv_b.data());
    REQUIRE_SAME_BITS(dqkv_a, dqkv_b);

    const Floats logits = random_floats(T * V, 16, 3.0f), weights = random_floats(T * V, 17);
    Floats logp_a(T * V), logp_b(T * V), entropy_a(T), entropy_b(T), picked_a(T), picked_b(T);
    Ints token_a(T), token_b(T);
    REQUIRE(quads_log_softmax(logits.data(), 0.7f, T, V, logp_a.data(), entropy_a.data()) == 0);
    reference::log_softmax(logits.data(), 0.7f, T, V, logp_b.data(), entropy_b.data());
    REQUIRE_SAME_BITS(logp_a, logp_b);
    REQUIRE_SAME_BITS(entropy_a, entropy_b);
    REQUIRE(quads_sample(logp_a.data(), rows.data(), T, T, V, 1, 2, 3, 4, token_a.data(), picked_a.data()) == 0);
    reference::sample(logp_b.data(), rows.data(), T, V, 1, 2, 3, 4, token_b.data(), picked_b.data());
    REQUIRE_SAME_BITS(token_a, token_b);
    REQUIRE_SAME_BITS(picked_a, picked_b);
    Floats dlogits_a(T * V), dlogits_b(T * V);
    REQUIRE(quads_log_softmax_backward(logp_a.data(), weights.data(), 0.7f, T, V, dlogits_a.data()) == 0);
    reference::log_softmax_backward(logp_b.data(), weights.data(), 0.7f, T, V, dlogits_b.data());
    REQUIRE_SAME_BITS(dlogits_a, dlogits_b);
}

TEST_CASE("c interface: GRPO", "[c_interface]") {
    const Floats rewards{1, 0, 0, 1, 1, 1, 0, 1};
    Floats advantages(8);
    REQUIRE(quads_group_advantages(rewards.data(), 8, 4, 1e-4f, advantages.data()) == 0);
    REQUIRE_SAME_BITS(advantages, group_advantages(rewards, 4, 1e-4f));

    const int sequences = 8, n = 3;
    const TokenBatch batch{sequences, n,          random_floats(24, 18),   random_floats(24, 19),
                           {},        advantages, {3, 2, 1, 0, 3, 3, 3, 2}};
    Floats gradient(sequences * n);
    for (const int correction : {QUADS_CORRECTION_ROLLOUT, QUADS_CORRECTION_NONE, QUADS_CORRECTION_TIS}) {
        REQUIRE(quads_policy_gradient(batch.logp_trainer.data(), batch.logp_rollout.data(), advantages.data(),
                                      batch.lengths.data(), sequences, n, 17, correction, 0.1f, 0.3f, 1.5f,
                                      gradient.data()) == 0);
        GrpoConfig config;
        config.correction = static_cast<Correction>(correction);
        config.clip_low = 0.1f;
        config.clip_high = 0.3f;
        config.tis_cap = 1.5f;
        REQUIRE_SAME_BITS(gradient, policy_gradient(batch, config, 17));
    }
}

TEST_CASE("c interface: refuses with a sentence", "[c_interface]") {
    Packed q(M, M, OuterScale::row);
    Floats x = random_floats(M * K, 20), y(M * N);
    const auto quantize = [&](const int* offsets, int groups, int rows, int columns, int outer_scale) {
        return refused(quads_quantize_nvfp4(x.data(), offsets, groups, rows, columns, outer_scale, q.codes.data(),
                                            q.scales.data(), q.outer.data()));
    };
    REQUIRE(contains(refused(quads_e2m1_encode(nullptr, 1, q.codes.data())), "Array 1 of the call is a null pointer"));
    REQUIRE(contains(refused(quads_e2m1_encode(x.data(), -1, q.codes.data())), "n is -1"));
    REQUIRE(contains(quantize(nullptr, 1, M, 0, 0), "K is 0"));
    REQUIRE(contains(quantize(nullptr, 1, -1, K, 0), "M is -1"));
    REQUIRE(contains(quantize(nullptr, 2, M, K, 0), "offsets is NULL"));
    REQUIRE(contains(quantize(nullptr, 1, M, K, 2), "outer_scale is 2"));
    const int descending[] = {0, 5, 4, M}, short_by_one[] = {0, 4, 4, M - 1};
    REQUIRE(contains(quantize(descending, E, M, K, 0), "offsets[2] is 4"));
    REQUIRE(contains(quantize(short_by_one, E, M, K, 0), "expected 0 to M = 9"));
    REQUIRE(contains(refused(quads_gemm_bf16(x.data(), x.data(), nullptr, nullptr, 1, 1, 1, 0, y.data())), "K is 0"));
    const int outside[] = {0, 3};
    REQUIRE(contains(refused(quads_gather_rows(x.data(), outside, 3, 2, 2, y.data())), "source[1] is 3"));
    REQUIRE(contains(refused(quads_attention(x.data(), x.data(), x.data(), 1, 2, 1, 0, 5, 2, y.data())), "D is 5"));
    REQUIRE(contains(refused(quads_group_advantages(x.data(), 5, 4, 0, y.data())), "groups of 4"));
    const int longer[] = {4};
    REQUIRE(
        contains(refused(quads_policy_gradient(x.data(), x.data(), x.data(), longer, 1, 3, 3, 0, 0, 0, 0, y.data())),
                 "lengths[0] is 4"));
    x[K + 2] = NAN;
    const Packed before = q;
    REQUIRE(contains(quantize(nullptr, 1, M, K, 0), "row 1"));
    require_same(q, before);
}
