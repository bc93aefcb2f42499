#include "reference/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "reference/check.hpp"
#include "reference/codec.hpp"
#include "reference/exact_math.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

// Keys, or columns, that are summed side by side. The vector type (g++ and clang++, any machine) says that the sums are
// independent; each of them keeps its order.
constexpr int kLanes = 8;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

constexpr int kRowGrain = 64;
constexpr int kChunk = 64;  // columns with constant loops: whole heads of kC = 16, 32 or 64; kC = 0 is any other width

int padded(int keys) { return (keys + kLanes - 1) / kLanes * kLanes; }

// The rows one query attends to, transposed: value[c * width + i] is column c of the query's i-th key, so that
// the dot products with kLanes keys are one loop over c. The next query shares most of its keys; only others are
// copied.
struct KeyColumns {
    KeyColumns(const float* cache, SequenceTree tree, int D)
        : cache(cache),
          tree(tree),
          D(D),
          width(padded(tree.prompt + tree.response)),
          row(width, -1),
          value(std::size_t(D) * width) {}

    void load(int query) {
        // tree.key_row(query, i) with its divisions taken out of the loop.
        const int keys = tree.keys(query), first_key = tree.key_row(query, 0), last_run = query - (keys - 1);
        for (int i = 0; i < keys; ++i) {
            const int key = i < tree.prompt ? first_key + i : last_run + i;
            if (row[i] == key) continue;
            row[i] = key;
            const float* from = cache + std::size_t(key) * D;
            for (int c = 0; c < D; ++c) value[std::size_t(c) * width + i] = from[c];
        }
    }

    const float* cache;
    SequenceTree tree;
    int D, width;
    std::vector<int> row;      // (width) cache row of each key, -1: none yet
    std::vector<float> value;  // (D, width)
};

// out[i] = sum_c x[c] * value[c * width + i], ascending c, for kVectors * kLanes keys side by side: one sum alone would
// wait for each of its additions.
template <int kC, int kVectors>
void dot_vectors(const float* x, const float* value, int width, int C, float* out) {
    Lanes sum[kVectors] = {};
    for (int c = 0; c < (kC > 0 ? kC : C); ++c) {
        const Lanes* column = reinterpret_cast<const Lanes*>(value + std::size_t(c) * width);
        for (int j = 0; j < kVectors; ++j) sum[j] += x[c] * column[j];
    }
    for (int j = 0; j < kVectors; ++j) reinterpret_cast<Lanes*>(out)[j] = sum[j];
}

// out[h * n + i] = sum_c x[h * C + c] * (column h * C + c of key i), ascending c, for i < n, a multiple of kLanes.
template <int kC>
void dot_keys(const float* x, const KeyColumns& keys_of, int H, int C, int n, float* out) {
    const int width = keys_of.width;
    for (int h = 0; h < H; ++h, x += C, out += n) {
        const float* value = keys_of.value.data() + std::size_t(h) * C * width;
        int i = 0;
        for (; n - i >= 3 * kLanes; i += 3 * kLanes) dot_vectors<kC, 3>(x, value + i, width, C, out + i);
        if (n - i == 2 * kLanes) dot_vectors<kC, 2>(x, value + i, width, C, out + i);
        if (n - i == kLanes) dot_vectors<kC, 1>(x, value + i, width, C, out + i);
    }
}

// result[h] = the last of running = term(h * n + i, running), ascending i < keys, from 0. Four heads at a time, because
// one chain alone would wait for each of its additions.
template <typename Term>
void reduce_keys(int H, int keys, int n, const Term& term, float* result) {
    int h = 0;
    for (; h + 4 <= H; h += 4) {
        float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
        for (int i = h * n; i < h * n + keys; ++i) {
            a = term(i, a);
            b = term(i + n, b);
            c = term(i + 2 * n, c);
            d = term(i + 3 * n, d);
        }
        const float four[] = {a, b, c, d};
        std::copy(four, four + 4, result + h);
    }
    for (; h < H; ++h) {
        float running = 0.0f;
        for (int i = h * n; i < h * n + keys; ++i) running = term(i, running);
        result[h] = running;
    }
}

// Turns the dot products of all heads into probabilities, in place. The lanes beyond the last key get probability 0.
// `scratch` holds H floats.
void softmax(float scale, int H, int keys, int n, float* p, float* scratch) {
    for (int i = 0; i < H * n; ++i) p[i] *= scale;
    for (int h = 0; h < H; ++h) {
        float* head = p + h * n;
        for (int i = keys; i < n; ++i) head[i] = -HUGE_VALF;
        float lane_max[kLanes];  // a maximum has no order to keep
        std::copy_n(head, kLanes, lane_max);
        for (int i = kLanes; i < n; i += kLanes) {
            for (int j = 0; j < kLanes; ++j) lane_max[j] = head[i + j] > lane_max[j] ? head[i + j] : lane_max[j];
        }
        const float largest = *std::max_element(lane_max, lane_max + kLanes);
        for (int i = 0; i < n; ++i) head[i] -= largest;
    }
    for (int i = 0; i < H * n; ++i) p[i] = exact_exp(p[i]);
    reduce_keys(H, keys, n, [p](int i, float sum) { return sum + p[i]; }, scratch);
    for (int h = 0; h < H; ++h) {
        for (int i = 0; i < n; ++i) p[h * n + i] /= scratch[h];
    }
}

void round_lanes(const float* x, int count, float* y) {
    for (int i = 0; i < count; ++i) y[i] = bf16_round(x[i]);
}

// out[d] = sum_i weight[h * n + i] * x[row[i] * D + d], ascending i, for the columns d of every head h.
template <int kC>
void mix_keys(const float* weight, const int* row, int keys, int n, const float* x, int D, int C, float* out) {
    if constexpr (kC > 0) {
        for (int first = 0; first < D; first += kChunk) {
            const float* head = weight + std::size_t(first / kC) * n;
            Lanes sum[kChunk / kLanes] = {};
            for (int i = 0; i < keys; ++i) {
                const Lanes* from = reinterpret_cast<const Lanes*>(x + std::size_t(row[i]) * D + first);
                for (int j = 0; j < kChunk / kLanes; ++j) sum[j] += head[j * kLanes / kC * n + i] * from[j];
            }
            for (int j = 0; j < kChunk / kLanes; ++j) reinterpret_cast<Lanes*>(out + first)[j] = sum[j];
        }
    } else {
        for (int d = 0; d < D; ++d) {
            float sum = 0.0f;
            for (int i = 0; i < keys; ++i) sum += weight[d / C * n + i] * x[std::size_t(row[i]) * D + d];
            out[d] = sum;
        }
    }
}

// y[row[i] * stride + d] += weight[h * n + i] * x[d] for every key i and the columns d of every head h.
template <int kC>
void spread_keys(const float* weight, const int* row, int keys, int n, const float* x, int D, int C, int stride,
                 float* y) {
    for (int i = 0; i < keys; ++i) {
        float* to = y + std::size_t(row[i]) * stride;
        if constexpr (kC > 0) {
            for (int first = 0; first < D; first += kChunk) {
                const float* head = weight + std::size_t(first / kC) * n + i;
                const Lanes* from = reinterpret_cast<const Lanes*>(x + first);
                Lanes* sum = reinterpret_cast<Lanes*>(to + first);
                for (int j = 0; j < kChunk / kLanes; ++j) sum[j] += head[j * kLanes / kC * n] * from[j];
            }
        } else {
            for (int d = 0; d < D; ++d) to[d] += weight[d / C * n + i] * x[d];
        }
    }
}

float head_scale(int C) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(C))); }

void check_arguments(SequenceTree tree, int D, int H) {
    check(H >= 1 && D >= H && D % H == 0, "The width D = ", D, " must be a multiple of the number of heads H = ", H,
          ".");
    check(tree.prompts >= 0 && tree.prompt >= 0 && tree.group >= 0 && tree.response >= 0 && tree.rows_per_prompt() >= 1,
          "A sequence tree needs at least one row per prompt, but prompt = ", tree.prompt, ", group = ", tree.group,
          " and response = ", tree.response, ".");
}

// What the backward keeps from query to query of one prompt.
struct PromptBackward {
    PromptBackward(const float* k, const float* v, SequenceTree tree, int D, int H)
        : keys_of(k, tree, D), values_of(v, tree, D), p(std::size_t(H) * keys_of.width), dp(p.size()), e(D), mean(H) {}

    // Gradients of query t: dq is written, dk and dv are added to the rows it attends to.
    template <int kC>
    void query(int t, const float* d_o, const float* q, const float* k, int D, int H, float* dqkv) {
        const int C = D / H;
        const float scale = head_scale(C);
        keys_of.load(t);
        values_of.load(t);
        const int keys = keys_of.tree.keys(t), n = padded(keys);
        const int* row = keys_of.row.data();
        const float* q_row = q + std::size_t(t) * D;
        dot_keys<kC>(q_row, keys_of, H, C, n, p.data());
        softmax(scale, H, keys, n, p.data(), mean.data());
        round_lanes(d_o + std::size_t(t) * D, D, e.data());
        dot_keys<kC>(e.data(), values_of, H, C, n, dp.data());

        reduce_keys(H, keys, n, [this](int i, float sum) { return fmaf(p[i], dp[i], sum); }, mean.data());
        std::vector<float>& ds = dp;
        for (int h = 0; h < H; ++h) {
            for (int i = h * n; i < h * n + n; ++i) ds[i] = bf16_round((p[i] * (dp[i] - mean[h])) * scale);
        }
        round_lanes(p.data(), H * n, p.data());

        mix_keys<kC>(ds.data(), row, keys, n, k, D, C, dqkv + std::size_t(t) * 3 * D);
        spread_keys<kC>(ds.data(), row, keys, n, q_row, D, C, 3 * D, dqkv + D);
        spread_keys<kC>(p.data(), row, keys, n, e.data(), D, C, 3 * D, dqkv + 2 * D);
    }

    KeyColumns keys_of, values_of;
    std::vector<float> p, dp, e, mean;
};

// body(std::integral_constant<int, kC>) for heads of C columns of D.
template <typename Body>
void with_head_width(int D, int C, const Body& body) {
    if (D % kChunk == 0 && C == 16) return body(std::integral_constant<int, 16>());
    if (D % kChunk == 0 && C == 32) return body(std::integral_constant<int, 32>());
    if (D % kChunk == 0 && C == 64) return body(std::integral_constant<int, 64>());
    body(std::integral_constant<int, 0>());
}

}  // namespace

void split_qkv(const float* qkv, const int* rows, int T, int D, KvFormat format, float* q, float* k_cache,
               float* v_cache) {
    parallel_for(T, kRowGrain, [=](int t) {
        check(rows[t] >= 0, "Row ", t, " is to be cached at row ", rows[t], ", but rows count from 0.");
        const float* in = qkv + std::size_t(t) * 3 * D;
        float* k = k_cache + std::size_t(rows[t]) * D;
        float* v = v_cache + std::size_t(rows[t]) * D;
        round_lanes(in, D, q + std::size_t(t) * D);
        round_lanes(in + D, D, k);
        round_lanes(in + 2 * D, D, v);
        if (format == KvFormat::fp8) {
            for (int d = 0; d < D; ++d) k[d] = e4m3_decode(e4m3_encode(k[d]));
            for (int d = 0; d < D; ++d) v[d] = e4m3_decode(e4m3_encode(v[d]));
        }
    });
}

void attention(const float* q, const float* k_cache, const float* v_cache, const int* rows, SequenceTree tree, int T,
               int D, int H, float* o) {
    check_arguments(tree, D, H);
    const int C = D / H;
    const auto attend = [=](auto width, int begin, int end) {
        constexpr int kC = decltype(width)::value;
        KeyColumns keys_of(k_cache, tree, D);
        std::vector<float> p(std::size_t(H) * keys_of.width), sums(H);
        for (int t = begin; t < end; ++t) {
            check(rows[t] >= 0 && rows[t] < tree.rows(), "The sequence tree has rows 0 .. ", tree.rows() - 1,
                  ", but query ", t, " is row ", rows[t], ".");
            keys_of.load(rows[t]);
            const int keys = tree.keys(rows[t]), n = padded(keys);
            float* out = o + std::size_t(t) * D;
            dot_keys<kC>(q + std::size_t(t) * D, keys_of, H, C, n, p.data());
            softmax(head_scale(C), H, keys, n, p.data(), sums.data());
            round_lanes(p.data(), H * n, p.data());
            mix_keys<kC>(p.data(), keys_of.row.data(), keys, n, v_cache, D, C, out);
            round_lanes(out, D, out);
        }
    };
    parallel_ranges(T, kRowGrain, [&](int begin, int end) {
        with_head_width(D, C, [&](auto width) { attend(width, begin, end); });
    });
}

void attention_backward(const float* d_o, const float* q, const float* k, const float* v, SequenceTree tree, int D,
                        int H, float* dqkv) {
    check_arguments(tree, D, H);
    const int rows = tree.rows_per_prompt();
    // A key meets queries of its own prompt only, so a prompt is one thread's and the sums over t stay ascending.
    parallel_for(tree.prompts, 1, [&](int prompt) {
        const int first_row = prompt * rows;
        for (int t = first_row; t < first_row + rows; ++t) {
            std::fill_n(dqkv + (std::size_t(t) * 3 + 1) * D, 2 * D, 0.0f);
        }
        PromptBackward backward(k, v, tree, D, H);
        with_head_width(D, D / H, [&](auto width) {
            for (int t = first_row; t < first_row + rows; ++t) {
                backward.query<decltype(width)::value>(t, d_o, q, k, D, H, dqkv);
            }
        });
    });
}

}  // namespace quads::reference
