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

// Keys, or columns of a head, that are summed side by side. The vector type (g++ and clang++, any machine) says that
// the sums are independent; each of them keeps its order.
constexpr int kLanes = 8;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

constexpr int kRowGrain = 64;

// Heads of kC columns, a multiple of kLanes, have loops of constant length; kC = 0 stands for any other width C.
template <int kC>
constexpr int columns(int C) {
    return kC > 0 ? kC : C;
}

int padded(int keys) { return (keys + kLanes - 1) / kLanes * kLanes; }

// The rows one query attends to, transposed: value[c * width + i] is column first + c of the query's i-th key, so that
// the dot products with kLanes keys are one loop over c. The next query shares most of its keys; only others are
// copied.
struct KeyColumns {
    KeyColumns(const float* cache, SequenceTree tree, int D, int first, int columns)
        : cache(cache),
          tree(tree),
          D(D),
          first(first),
          columns(columns),
          width(padded(tree.prompt + tree.response)),
          row(width, -1),
          value(std::size_t(columns) * width) {}

    void load(int query) {
        // tree.key_row(query, i) with its divisions taken out of the loop.
        const int keys = tree.keys(query), first_key = tree.key_row(query, 0), last_run = query - (keys - 1);
        for (int i = 0; i < keys; ++i) {
            const int key = i < tree.prompt ? first_key + i : last_run + i;
            if (row[i] == key) continue;
            row[i] = key;
            const float* from = cache + std::size_t(key) * D + first;
            for (int c = 0; c < columns; ++c) value[std::size_t(c) * width + i] = from[c];
        }
    }

    const float* cache;
    SequenceTree tree;
    int D, first, columns, width;
    std::vector<int> row;      // (width) cache row of each key, -1: none yet
    std::vector<float> value;  // (columns, width)
};

// out[i] = sum_c x[c] * value[c * width + i], ascending c, for kVectors * kLanes keys side by side: one sum alone would wait
// for each of its additions.
template <int kC, int kVectors>
void dot_vectors(const float* x, const float* value, int width, int C, float* out) {
    Lanes sum[kVectors] = {};
    for (int c = 0; c < columns<kC>(C); ++c) {
        const Lanes* column = reinterpret_cast<const Lanes*>(value + std::size_t(c) * width);
        for (int j = 0; j < kVectors; ++j) sum[j] += x[c] * column[j];
    }
    for (int j = 0; j < kVectors; ++j) reinterpret_cast<Lanes*>(out)[j] = sum[j];
}

// The same for i < padded(keys).
template <int kC>
void dot_keys(const float* x, const float* value, int width, int C, int keys, float* out) {
    int i = 0;
    for (; padded(keys) - i >= 3 * kLanes; i += 3 * kLanes) dot_vectors<kC, 3>(x, value + i, width, C, out + i);
    if (padded(keys) - i == 2 * kLanes) dot_vectors<kC, 2>(x, value + i, width, C, out + i);
    if (padded(keys) - i == kLanes) dot_vectors<kC, 1>(x, value + i, width, C, out + i);
}

// Turns dot products into probabilities, in place. The lanes beyond the last key get probability 0.
void softmax(float scale, int keys, float* p) {
    const int lanes = padded(keys);
    for (int i = 0; i < lanes; ++i) p[i] *= scale;
    std::fill(p + keys, p + lanes, -HUGE_VALF);

    float lane_max[kLanes];  // a maximum has no order to keep
    std::copy_n(p, kLanes, lane_max);
    for (int i = kLanes; i < lanes; i += kLanes) {
        for (int j = 0; j < kLanes; ++j) lane_max[j] = p[i + j] > lane_max[j] ? p[i + j] : lane_max[j];
    }
    const float largest = *std::max_element(lane_max, lane_max + kLanes);

    for (int i = 0; i < lanes; ++i) p[i] = exact_exp(p[i] - largest);
    float sum = 0.0f;
    for (int i = 0; i < keys; ++i) sum += p[i];
    for (int i = 0; i < lanes; ++i) p[i] /= sum;
}

void round_lanes(const float* x, int n, float* y) {
    for (int i = 0; i < n; ++i) y[i] = bf16_round(x[i]);
}

// out[c] = sum_i weight[i] * x[row[i] * D + c], ascending i.
template <int kC>
void mix_head(const float* weight, const int* row, int keys, const float* x, int D, int C, float* out) {
    if constexpr (kC > 0) {
        Lanes sum[kC / kLanes] = {};
        for (int i = 0; i < keys; ++i) {
            const Lanes* from = reinterpret_cast<const Lanes*>(x + std::size_t(row[i]) * D);
            for (int j = 0; j < kC / kLanes; ++j) sum[j] += weight[i] * from[j];
        }
        for (int j = 0; j < kC / kLanes; ++j) reinterpret_cast<Lanes*>(out)[j] = sum[j];
    } else {
        for (int c = 0; c < C; ++c) {
            float sum = 0.0f;
            for (int i = 0; i < keys; ++i) sum += weight[i] * x[std::size_t(row[i]) * D + c];
            out[c] = sum;
        }
    }
}

// y[row[i] * stride + c] += weight[i] * x[c]
template <int kC>
void spread_head(const float* weight, const int* row, int keys, const float* x, int C, int stride, float* y) {
    for (int i = 0; i < keys; ++i) {
        float* to = y + std::size_t(row[i]) * stride;
        if constexpr (kC > 0) {
            for (int j = 0; j < kC / kLanes; ++j) {
                reinterpret_cast<Lanes*>(to)[j] += weight[i] * reinterpret_cast<const Lanes*>(x)[j];
            }
        } else {
            for (int c = 0; c < C; ++c) to[c] += weight[i] * x[c];
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

// Everything of one query and head that the backward needs, and the gradients it adds.
template <int kC>
struct HeadBackward {
    HeadBackward(const float* k, const float* v, SequenceTree tree, int D, int C, int first)
        : keys_of(k, tree, D, first, C),
          values_of(v, tree, D, first, C),
          p(keys_of.width),
          dp(keys_of.width),
          e(C),
          D(D),
          C(C),
          first(first),
          scale(head_scale(C)) {}

    void query(int t, const float* d_o, const float* q, const float* k, float* dqkv) {
        keys_of.load(t);
        values_of.load(t);
        const int keys = keys_of.tree.keys(t);
        const int* row = keys_of.row.data();
        const float* q_head = q + std::size_t(t) * D + first;
        dot_keys<kC>(q_head, keys_of.value.data(), keys_of.width, C, keys, p.data());
        softmax(scale, keys, p.data());
        round_lanes(d_o + std::size_t(t) * D + first, C, e.data());
        dot_keys<kC>(e.data(), values_of.value.data(), values_of.width, C, keys, dp.data());

        float mean = 0.0f;
        for (int i = 0; i < keys; ++i) mean = fmaf(p[i], dp[i], mean);
        std::vector<float>& ds = dp;
        for (int i = 0; i < keys; ++i) ds[i] = bf16_round((p[i] * (dp[i] - mean)) * scale);
        round_lanes(p.data(), keys, p.data());

        float* out = dqkv + first;
        mix_head<kC>(ds.data(), row, keys, k + first, D, C, out + std::size_t(t) * 3 * D);
        spread_head<kC>(ds.data(), row, keys, q_head, C, 3 * D, out + D);
        spread_head<kC>(p.data(), row, keys, e.data(), C, 3 * D, out + 2 * D);
    }

    KeyColumns keys_of, values_of;
    std::vector<float> p, dp, e;
    int D, C, first;
    float scale;
};

// body(std::integral_constant<int, kC>) for the width C of a head.
template <typename Body>
void with_head_width(int C, const Body& body) {
    switch (C) {
        case 16: return body(std::integral_constant<int, 16>());
        case 32: return body(std::integral_constant<int, 32>());
        case 64: return body(std::integral_constant<int, 64>());
        default: return body(std::integral_constant<int, 0>());
    }
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
    const float scale = head_scale(C);
    const auto attend = [=](auto width, int begin, int end) {
        constexpr int kC = decltype(width)::value;
        KeyColumns keys_of(k_cache, tree, D, 0, D);
        std::vector<float> p(keys_of.width);
        for (int t = begin; t < end; ++t) {
            check(rows[t] >= 0 && rows[t] < tree.rows(), "The sequence tree has rows 0 .. ", tree.rows() - 1,
                  ", but query ", t, " is row ", rows[t], ".");
            keys_of.load(rows[t]);
            const int keys = tree.keys(rows[t]);
            for (int first = 0; first < D; first += C) {
                const float* head_keys = keys_of.value.data() + std::size_t(first) * keys_of.width;
                float* out = o + std::size_t(t) * D + first;
                dot_keys<kC>(q + std::size_t(t) * D + first, head_keys, keys_of.width, C, keys, p.data());
                softmax(scale, keys, p.data());
                round_lanes(p.data(), keys, p.data());
                mix_head<kC>(p.data(), keys_of.row.data(), keys, v_cache + first, D, C, out);
                round_lanes(out, C, out);
            }
        }
    };
    parallel_ranges(T, kRowGrain, [&](int begin, int end) {
        with_head_width(C, [&](auto width) { attend(width, begin, end); });
    });
}

void attention_backward(const float* d_o, const float* q, const float* k, const float* v, SequenceTree tree, int D,
                        int H, float* dqkv) {
    check_arguments(tree, D, H);
    const int C = D / H;
    const int rows = tree.rows_per_prompt();
    const auto backward = [=](auto width, int first_row, int first) {
        HeadBackward<decltype(width)::value> head(k, v, tree, D, C, first);
        for (int t = first_row; t < first_row + rows; ++t) head.query(t, d_o, q, k, dqkv);
    };
    // A key meets queries of its own prompt only, so a prompt and head is one thread's: the sums over t stay ascending.
    parallel_for(tree.prompts * H, 1, [&](int task) {
        const int first_row = task / H * rows;
        const int first = task % H * C;
        for (int t = first_row; t < first_row + rows; ++t) {
            for (int part = 1; part < 3; ++part) std::fill_n(dqkv + (std::size_t(t) * 3 + part) * D + first, C, 0.0f);
        }
        with_head_width(C, [&](auto width) { backward(width, first_row, first); });
    });
}

}  // namespace quads::reference
