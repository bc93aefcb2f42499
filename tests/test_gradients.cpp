// Every backward against central differences of a loss written in double, without BF16 roundings. The loss is
// sum(weight * output), so that the upstream gradient is `weight`.
#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/attention.hpp"
#include "reference/embedding.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/log_softmax.hpp"
#include "reference/rmsnorm.hpp"
#include "reference/router.hpp"
#include "reference/swiglu.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"

using namespace quads;

namespace {

// Tens of FP32 roundings of 2^-24 each, and differences that are good to 1e-9.
constexpr double kFp32 = 1e-6;
// The backward of attention rounds p and ds to BF16, 2^-8 of each term at most and a fraction of that on average.
constexpr double kBf16 = 0x1p-7;

using Loss = std::function<double(const Doubles&)>;

// Largest error of `gradient` at x, relative to the largest component. NaN passes no bound.
double gradient_error(const Floats& gradient, const Floats& at, const Loss& loss) {
    Doubles x = to_double(at), numeric(x.size());
    const double step = 1e-5;
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = at[i] + step;
        const double above = loss(x);
        x[i] = at[i] - step;
        numeric[i] = (above - loss(x)) / (2 * step);
        x[i] = at[i];
    }
    REQUIRE(largest_magnitude(gradient) > 0.0);
    return largest_difference(gradient, numeric) / largest_magnitude(gradient);
}

double dot(const Floats& weight, const Doubles& y) {
    double sum = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i];
    return sum;
}

Doubles softmax(const double* x, int n) {
    Doubles p(x, x + n);
    double sum = 0.0;
    for (double& value : p) sum += value = std::exp(value);
    for (double& value : p) value /= sum;
    return p;
}

}  // namespace

TEST_CASE("gradients: rmsnorm", "[gradients][rmsnorm]") {
    const int T = 5, D = 17;
    const Floats x = random_bf16(T * D, 1), g = random_bf16(D, 2), dh = random_floats(T * D, 3);
    Floats h(T * D), rstd(T), dx(T * D), dg(D);
    reference::rmsnorm(x.data(), g.data(), T, D, h.data(), rstd.data());
    reference::rmsnorm_backward(dh.data(), x.data(), g.data(), rstd.data(), T, D, dx.data(), dg.data());
    const auto loss = [&](const Doubles& x_, const Doubles& g_) {
        Doubles y(T * D);
        for (int t = 0; t < T; ++t) {
            double squares = 0.0;
            for (int d = 0; d < D; ++d) squares += x_[t * D + d] * x_[t * D + d];
            for (int d = 0; d < D; ++d) y[t * D + d] = x_[t * D + d] / std::sqrt(squares / D + 1e-6) * g_[d];
        }
        return dot(dh, y);
    };
    REQUIRE(gradient_error(dx, x, [&](const Doubles& x_) { return loss(x_, to_double(g)); }) < kFp32);
    REQUIRE(gradient_error(dg, g, [&](const Doubles& g_) { return loss(to_double(x), g_); }) < kFp32);
}

TEST_CASE("gradients: swiglu", "[gradients][swiglu]") {
    const int R = 5, F = 17;
    const Floats gate_up = random_bf16(R * 2 * F, 1, 4.0f), dm = random_floats(R * F, 2);
    Floats dgate_up(R * 2 * F);
    reference::swiglu_backward(dm.data(), gate_up.data(), R, F, dgate_up.data());
    const auto loss = [&](const Doubles& x) {
        Doubles m(R * F);
        for (int i = 0; i < R * F; ++i) {
            const double gate = x[i / F * 2 * F + i % F], up = x[i / F * 2 * F + F + i % F];
            m[i] = gate / (1 + std::exp(-gate)) * up;
        }
        return dot(dm, m);
    };
    REQUIRE(gradient_error(dgate_up, gate_up, loss) < kFp32);
}

TEST_CASE("gradients: attention", "[gradients][attention]") {
    const SequenceTree tree{2, 5, 2, 3};
    const int D = 12, H = 2, C = D / H, T = tree.rows();
    const Floats qkv = random_bf16(T * 3 * D, 1, 2.0f), d_o = random_bf16(T * D, 2);
    Ints rows(T);
    for (int t = 0; t < T; ++t) rows[t] = t;
    Floats q(T * D), k(T * D), v(T * D), dqkv(T * 3 * D);
    reference::split_qkv(qkv.data(), rows.data(), T, D, KvFormat::bf16, q.data(), k.data(), v.data());
    reference::attention_backward(d_o.data(), q.data(), k.data(), v.data(), tree, D, H, dqkv.data());

    const auto loss = [&](const Doubles& x) {
        Doubles o(T * D, 0.0);
        for (int t = 0; t < T; ++t) {
            const int in_prompt = t % 11, first_row = t - in_prompt;  // 11 rows a prompt: 5 + 2 * 3
            Ints keys;
            for (int i = 0; i <= in_prompt; ++i) {
                if (i < 5 || (i - 5) / 3 == (in_prompt - 5) / 3) keys.push_back(first_row + i);
            }
            for (int first = 0; first < D; first += C) {
                Doubles a;
                for (const int key : keys) {
                    double sum = 0.0;
                    for (int c = first; c < first + C; ++c) sum += x[t * 3 * D + c] * x[key * 3 * D + D + c];
                    a.push_back(sum / std::sqrt(C));
                }
                const Doubles p = softmax(a.data(), static_cast<int>(a.size()));
                for (std::size_t i = 0; i < keys.size(); ++i) {
                    for (int c = first; c < first + C; ++c) o[t * D + c] += p[i] * x[keys[i] * 3 * D + 2 * D + c];
                }
            }
        }
        return dot(d_o, o);
    };
    REQUIRE(gradient_error(dqkv, qkv, loss) < kBf16);
}

TEST_CASE("gradients: router with its load-balance loss", "[gradients][router_topk]") {
    const int T = 9, E = 5, S = 2;
    const float balance = 0.3f;
    const Floats logits = random_floats(T * E, 1, 2.0f), dgates = random_floats(T * S, 2);
    Floats probs(T * E), gates(T * S), dlogits(T * E);
    Ints experts(T * S), offsets(E + 1), source(T * S), place(T * S);
    reference::router_topk(logits.data(), nullptr, T, E, S, probs.data(), experts.data(), gates.data());
    reference::route_rows(experts.data(), T, E, S, offsets.data(), source.data(), place.data());
    reference::router_topk_backward(dgates.data(), probs.data(), experts.data(), gates.data(), offsets.data(), balance,
                                    T, E, S, dlogits.data());
    const auto loss = [&](const Doubles& x) {
        double sum = 0.0;
        for (int t = 0; t < T; ++t) {
            const Doubles p = softmax(&x[t * E], E);
            const int* chosen = &experts[t * S];
            for (int s = 0; s < S; ++s) sum += dgates[t * S + s] * p[chosen[s]] / (p[chosen[0]] + p[chosen[1]]);
            for (int e = 0; e < E; ++e) {
                const double share = std::count(experts.begin(), experts.end(), e) / double(T);
                sum += balance * E * share * p[e] / T;
            }
        }
        return sum;
    };
    REQUIRE(gradient_error(dlogits, logits, loss) < kFp32);
}

TEST_CASE("gradients: gather and combine", "[gradients][combine_rows]") {
    const int T = 5, D = 7, S = 2, R = T * S;
    const Ints place = {3, 9, 0, 1, 8, 2, 7, 4, 6, 5};
    Ints source(R);
    for (int i = 0; i < R; ++i) source[place[i]] = i / S;
    const Floats x = random_floats(R * D, 1), gates = random_floats(R, 2), tokens = random_floats(T * D, 3);
    const Floats dy = random_floats(T * D, 4), dgathered = random_floats(R * D, 5);
    Floats dx(R * D), dgates(R), dtokens(T * D);
    reference::combine_rows_backward(dy.data(), x.data(), place.data(), gates.data(), T, D, S, dx.data(),
                                     dgates.data());
    reference::combine_rows(dgathered.data(), place.data(), nullptr, T, D, S, dtokens.data());
    const auto loss = [&](const Doubles& x_, const Doubles& gates_) {
        Doubles y(T * D, 0.0);
        for (int i = 0; i < R; ++i) {
            for (int d = 0; d < D; ++d) y[i / S * D + d] += gates_[i] * x_[place[i] * D + d];
        }
        return dot(dy, y);
    };
    REQUIRE(gradient_error(dx, x, [&](const Doubles& x_) { return loss(x_, to_double(gates)); }) < kFp32);
    REQUIRE(gradient_error(dgates, gates, [&](const Doubles& g_) { return loss(to_double(x), g_); }) < kFp32);
    const auto gather_loss = [&](const Doubles& tokens_) {
        Doubles y(R * D);
        for (int i = 0; i < R * D; ++i) y[i] = tokens_[source[i / D] * D + i % D];
        return dot(dgathered, y);
    };
    REQUIRE(gradient_error(dtokens, tokens, gather_loss) < kFp32);
}

TEST_CASE("gradients: embedding", "[gradients][embed]") {
    const int T = 9, D = 5, rows = 4;
    const Ints index = {0, 2, 2, 1, 0, 2, 1, 1, 2};  // row 3 gets a gradient of 0
    const Floats table = random_floats(rows * D, 1), dx = random_floats(T * D, 2);
    Floats d_table(rows * D);
    reference::embed_backward(dx.data(), index.data(), T, D, rows, d_table.data());
    const auto loss = [&](const Doubles& table_) {
        Doubles y(T * D);
        for (int i = 0; i < T * D; ++i) y[i] = table_[index[i / D] * D + i % D];
        return dot(dx, y);
    };
    REQUIRE(gradient_error(d_table, table, loss) < kFp32);
}

TEST_CASE("gradients: log_softmax", "[gradients][log_softmax]") {
    const int T = 5, V = 17;
    const float temperature = 0.7f;
    const Floats logits = random_floats(T * V, 1, 3.0f), weights = random_floats(T * V, 2);
    Floats logp(T * V), entropy(T), dlogits(T * V);
    reference::log_softmax(logits.data(), temperature, T, V, logp.data(), entropy.data());
    reference::log_softmax_backward(logp.data(), weights.data(), temperature, T, V, dlogits.data());
    const auto loss = [&](const Doubles& x) {
        Doubles y(T * V);
        for (int t = 0; t < T; ++t) {
            double sum = 0.0;
            for (int v = 0; v < V; ++v) sum += std::exp(x[t * V + v] / temperature);
            for (int v = 0; v < V; ++v) y[t * V + v] = x[t * V + v] / temperature - std::log(sum);
        }
        return dot(weights, y);
    };
    REQUIRE(gradient_error(dlogits, logits, loss) < kFp32);
}

// Operands are BF16-valued already, so the backward's own BF16 roundings change nothing.
TEST_CASE("gradients: grouped BF16 GEMM, with and without outer scales", "[gradients][gemm_bf16]") {
    const int M = 9, N = 7, K = 17, E = 3;
    const Ints offsets = {0, 4, 4, 9};  // the second group is empty
    const Groups groups{offsets.data(), E};
    const Floats x = random_bf16(M * K, 1), w = random_bf16(E * N * K, 2), dy = random_bf16(M * N, 3);
    const Floats outer = {0.5f, 3.0f, 1.7f};
    for (const bool scaled : {false, true}) {
        const auto loss = [&](const Doubles& x_, const Doubles& w_) {
            Doubles y(M * N, 0.0);
            for (int m = 0; m < M; ++m) {
                const int e = m < 4 ? 0 : 2;
                for (int n = 0; n < N; ++n) {
                    for (int k = 0; k < K; ++k) y[m * N + n] += x_[m * K + k] * w_[(e * N + n) * K + k];
                    if (scaled) y[m * N + n] *= outer[e];
                }
            }
            return dot(dy, y);
        };
        Floats dx(M * K);
        reference::gemm_bf16_backward_input(dy.data(), w.data(), scaled ? outer.data() : nullptr, groups, M, N, K,
                                            dx.data());
        REQUIRE(gradient_error(dx, x, [&](const Doubles& x_) { return loss(x_, to_double(w)); }) < kFp32);
        if (scaled) continue;  // dw is the straight-through gradient, taken without the outer scale
        Floats dw(E * N * K, NAN);
        reference::gemm_bf16_backward_weight(dy.data(), x.data(), groups, M, N, K, dw.data());
        REQUIRE(gradient_error(dw, w, [&](const Doubles& w_) { return loss(to_double(x), w_); }) < kFp32);
    }
}
