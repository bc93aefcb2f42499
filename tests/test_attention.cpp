#include "reference/attention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <Eigen/Core>

#include "reference/check.hpp"
#include "reference/exact_math.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

using namespace quads;

namespace {

// Tree rows that a row attends to, ascending, by the layout that reference/dims.hpp draws.
Ints keys_of(const SequenceTree& tree, int row) {
    const int per_prompt = tree.prompt + tree.group * tree.response;
    const int first = row / per_prompt * per_prompt, i = row - first;
    Ints keys;
    for (int key = 0; key < std::min(i + 1, tree.prompt); ++key) keys.push_back(first + key);
    if (i >= tree.prompt) {
        const int own = i - (i - tree.prompt) % tree.response;
        for (int key = own; key <= i; ++key) keys.push_back(first + key);
    }
    return keys;
}

struct Head {
    const Floats &q, &k, &v;
    int D, C, first;

    float scale() const { return static_cast<float>(1.0 / std::sqrt(double(C))); }

    Floats probabilities(int query, int query_row, const SequenceTree& tree) const {
        const Ints keys = keys_of(tree, query_row);
        Floats p;
        for (const int key : keys) {
            float a = 0.0f;
            for (int c = first; c < first + C; ++c) a = std::fma(q[query * D + c], k[key * D + c], a);
            p.push_back(a * scale());
        }
        const float largest = *std::max_element(p.begin(), p.end());
        float sum = 0.0f;
        for (float& value : p) sum += value = exact_exp(value - largest);
        for (float& value : p) value /= sum;
        return p;
    }
};

Floats literal_attention(const Floats& q, const Floats& k, const Floats& v, const Ints& rows, const SequenceTree& tree,
                         int D, int H) {
    Floats o(rows.size() * D, 0.0f);
    for (int first = 0; first < D; first += D / H) {
        const Head head{q, k, v, D, D / H, first};
        for (std::size_t t = 0; t < rows.size(); ++t) {
            const Ints keys = keys_of(tree, rows[t]);
            const Floats p = nearest_bf16(head.probabilities(static_cast<int>(t), rows[t], tree));
            for (int c = first; c < first + D / H; ++c) {
                float sum = 0.0f;
                for (std::size_t i = 0; i < keys.size(); ++i) sum = std::fma(p[i], v[keys[i] * D + c], sum);
                o[t * D + c] = nearest_bf16(sum);
            }
        }
    }
    return o;
}

Floats literal_backward(const Floats& d_o, const Floats& q, const Floats& k, const Floats& v, const SequenceTree& tree,
                        int D, int H) {
    const int T = tree.rows();
    Floats dqkv(T * 3 * D, 0.0f);
    const Floats e = nearest_bf16(d_o);
    for (int first = 0; first < D; first += D / H) {
        const Head head{q, k, v, D, D / H, first};
        for (int t = 0; t < T; ++t) {
            const Ints keys = keys_of(tree, t);
            const Floats p = head.probabilities(t, t, tree);
            Floats dp(keys.size(), 0.0f);
            float mean = 0.0f;
            for (std::size_t i = 0; i < keys.size(); ++i) {
                for (int c = first; c < first + head.C; ++c) dp[i] = std::fma(e[t * D + c], v[keys[i] * D + c], dp[i]);
                mean = std::fma(p[i], dp[i], mean);
            }
            for (std::size_t i = 0; i < keys.size(); ++i) {
                const float ds = nearest_bf16((p[i] * (dp[i] - mean)) * head.scale());
                for (int c = first; c < first + head.C; ++c) {
                    float &dq = dqkv[t * 3 * D + c], &dk = dqkv[keys[i] * 3 * D + D + c];
                    float& dv = dqkv[keys[i] * 3 * D + 2 * D + c];
                    dq = std::fma(ds, k[keys[i] * D + c], dq);
                    dk = std::fma(ds, q[t * D + c], dk);
                    dv = std::fma(nearest_bf16(p[i]), e[t * D + c], dv);
                }
            }
        }
    }
    return dqkv;
}

Floats attend(const Floats& q, const Floats& k, const Floats& v, const Ints& rows, SequenceTree tree, int D, int H) {
    Floats o(rows.size() * D, NAN);
    const int T = static_cast<int>(rows.size());
    reference::attention(q.data(), k.data(), v.data(), rows.data(), tree, T, D, H, o.data());
    return o;
}

Ints all_rows(const SequenceTree& tree) {
    Ints rows(tree.rows());
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}

struct Shape {
    SequenceTree tree;
    int D, H;
};

// The last one is large because a last bit of FP32 survives the rounding to BF16 about once in 2^15 elements.
const Shape kShapes[] = {
    {{1, 1, 0, 0}, 1, 1},    {{3, 15, 1, 1}, 16, 1},  {{2, 16, 2, 3}, 64, 4},
    {{2, 17, 3, 15}, 30, 2}, {{1, 33, 2, 16}, 34, 2}, {{2, 1, 4, 33}, 132, 4},
    {{7, 16, 8, 6}, 24, 3},  {{2, 0, 2, 17}, 8, 1},   {{150, 16, 8, 6}, 34, 2},
};

}  // namespace

TEST_CASE("attention: forward and backward are the header's formulas, bit for bit", "[attention]") {
    for (const Shape& s : kShapes) {
        const int n = s.tree.rows() * s.D;
        const Floats q = random_bf16(n, 1, 3.0f), k = random_bf16(n, 2), v = random_bf16(n, 3);
        const Floats d_o = random_floats(n, 4);
        const Ints rows = all_rows(s.tree);
        const Floats literal = literal_attention(q, k, v, rows, s.tree, s.D, s.H);
        const Floats dqkv_literal = literal_backward(d_o, q, k, v, s.tree, s.D, s.H);
        with_one_and_two_threads([&](int) {
            REQUIRE_SAME_BITS(attend(q, k, v, rows, s.tree, s.D, s.H), literal);
            Floats dqkv(3 * n, NAN);
            reference::attention_backward(d_o.data(), q.data(), k.data(), v.data(), s.tree, s.D, s.H, dqkv.data());
            REQUIRE_SAME_BITS(dqkv, dqkv_literal);
        });
    }
}

// p and o are rounded to BF16, 2^-8 relative each; with |v| <= 1 that is at most 2^-7 in o.
TEST_CASE("attention: close to Eigen's double arithmetic", "[attention]") {
    const SequenceTree tree{2, 16, 2, 3};
    const int D = 32, H = 2, C = D / H, T = tree.rows();
    const Floats q = random_bf16(T * D, 1, 3.0f), k = random_bf16(T * D, 2), v = random_bf16(T * D, 3);
    const Floats o = attend(q, k, v, all_rows(tree), tree, D, H);
    const auto matrix = [=](const Floats& x) -> Eigen::MatrixXd {
        return Eigen::Map<const Eigen::MatrixXf>(x.data(), D, T).cast<double>();  // a token is a column
    };
    const Eigen::MatrixXd Q = matrix(q), K = matrix(k), V = matrix(v), O = matrix(o);
    for (int t = 0; t < T; ++t) {
        const Ints keys = keys_of(tree, t);
        for (int first = 0; first < D; first += C) {
            Eigen::VectorXd p(keys.size()), expected = Eigen::VectorXd::Zero(C);
            for (std::size_t i = 0; i < keys.size(); ++i) {
                p[i] = std::exp(Q.col(t).segment(first, C).dot(K.col(keys[i]).segment(first, C)) / std::sqrt(C));
            }
            for (std::size_t i = 0; i < keys.size(); ++i) expected += p[i] / p.sum() * V.col(keys[i]).segment(first, C);
            REQUIRE((O.col(t).segment(first, C) - expected).cwiseAbs().maxCoeff<Eigen::PropagateNaN>() < 0x1p-7);
        }
    }
}

TEST_CASE("attention: sharing a prompt gives the bits of each sequence on its own", "[attention]") {
    const SequenceTree tree{3, 16, 4, 6}, single{1, 16, 1, 6};
    const int D = 32, H = 2;
    const Floats q = random_bf16(tree.rows() * D, 1, 3.0f), k = random_bf16(tree.rows() * D, 2),
                 v = random_bf16(tree.rows() * D, 3);
    const Floats shared = attend(q, k, v, all_rows(tree), tree, D, H);
    for (int p = 0; p < tree.prompts; ++p) {
        for (int g = 0; g < tree.group; ++g) {
            Ints rows;  // of one unshared sequence, in the tree
            for (int i = 0; i < 16; ++i) rows.push_back(p * 40 + i);
            for (int j = 0; j < 6; ++j) rows.push_back(p * 40 + 16 + g * 6 + j);
            Floats q1, k1, v1, expected;
            for (const int row : rows) {
                for (int d = row * D; d < (row + 1) * D; ++d) {
                    q1.push_back(q[d]);
                    k1.push_back(k[d]);
                    v1.push_back(v[d]);
                    expected.push_back(shared[d]);
                }
            }
            REQUIRE_SAME_BITS(attend(q1, k1, v1, all_rows(single), single, D, H), expected);
        }
    }
}

// The rollout fills its cache as it goes. What is not written yet is NaN here and must not be read.
TEST_CASE("attention: token by token from a growing cache gives the bits of the batch", "[attention][split_qkv]") {
    const SequenceTree tree{3, 5, 4, 6};
    const int D = 32, H = 2, T = tree.rows();
    const Floats qkv = random_floats(T * 3 * D, 1, 3.0f);
    for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8}) {
        const Ints all = all_rows(tree);
        Floats q(T * D), k(T * D), v(T * D);
        reference::split_qkv(qkv.data(), all.data(), T, D, format, q.data(), k.data(), v.data());
        const Floats whole = attend(q, k, v, all, tree, D, H);

        Floats k_cache(T * D, NAN), v_cache(T * D, NAN), grown(T * D, NAN);
        for (int position = 0; position < tree.prompt + tree.response; ++position) {
            Ints rows;  // every row of this position: once per prompt, then once per response
            for (int row = 0; row < T; ++row) {
                if (static_cast<int>(keys_of(tree, row).size()) == position + 1) rows.push_back(row);
            }
            const int N = static_cast<int>(rows.size());
            Floats step_qkv, step_q(N * D);
            for (const int row : rows) step_qkv.insert(step_qkv.end(), &qkv[row * 3 * D], &qkv[row * 3 * D] + 3 * D);
            reference::split_qkv(step_qkv.data(), rows.data(), N, D, format, step_q.data(), k_cache.data(),
                                 v_cache.data());
            const Floats o = attend(step_q, k_cache, v_cache, rows, tree, D, H);
            for (int i = 0; i < N * D; ++i) grown[rows[i / D] * D + i % D] = o[i];
        }
        REQUIRE_SAME_BITS(grown, whole);
    }
}

namespace {

// Nearest E4M3 value by search over all magnitudes; a tie goes to the even code.
float nearest_e4m3(float x) {
    float best = 0.0f;
    for (int code = 0; code < 127; ++code) {
        const int exponent = code >> 3, mantissa = code & 7;
        const float value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
        const float distance = std::fabs(std::fabs(x) - value), best_distance = std::fabs(std::fabs(x) - best);
        if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = value;
    }
    return std::copysign(best, x);
}

}  // namespace

TEST_CASE("split_qkv: rounds to the cache's format and writes the given rows only", "[split_qkv]") {
    for (const int D : {1, 15, 16, 17, 33}) {
        const Ints rows = {4, 0, 2};
        const Floats qkv = random_floats(3 * 3 * D, D, 600.0f);  // beyond 448, where E4M3 saturates
        for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8}) {
            Floats q(3 * D), k(6 * D, -1.0f), v = k, q_expected(3 * D), k_expected = k, v_expected = v;
            for (int i = 0; i < 3 * D; ++i) {
                const float* in = &qkv[i / D * 3 * D + i % D];
                const int at = rows[i / D] * D + i % D;
                q_expected[i] = nearest_bf16(in[0]);
                k_expected[at] = nearest_bf16(in[D]);
                v_expected[at] = nearest_bf16(in[2 * D]);
                if (format == KvFormat::fp8) {
                    k_expected[at] = nearest_e4m3(k_expected[at]);
                    v_expected[at] = nearest_e4m3(v_expected[at]);
                }
            }
            reference::split_qkv(qkv.data(), rows.data(), 3, D, format, q.data(), k.data(), v.data());
            REQUIRE_SAME_BITS(q, q_expected);
            REQUIRE_SAME_BITS(k, k_expected);
            REQUIRE_SAME_BITS(v, v_expected);
        }
    }
}

TEST_CASE("attention: rows outside the tree and odd head widths are refused", "[attention]") {
    const SequenceTree tree{1, 4, 0, 0};
    const Floats x(4 * 6, 0.0f);
    REQUIRE_THROWS_AS(attend(x, x, x, {4}, tree, 6, 2), Error);
    REQUIRE_THROWS_AS(attend(x, x, x, {-1}, tree, 6, 2), Error);
    REQUIRE_THROWS_AS(attend(x, x, x, {0}, tree, 6, 4), Error);
    Floats dqkv(4 * 18);
    REQUIRE_THROWS_AS(reference::attention_backward(x.data(), x.data(), x.data(), x.data(), tree, 6, 4, dqkv.data()),
                      Error);
}
