#include "reference/nvfp4.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "reference/amax.hpp"
#include "reference/check.hpp"
#include "reference/codec.hpp"
#include "reference/memory.hpp"
#include "reference/parallel.hpp"
#include "reference/philox.hpp"

namespace quads::reference {
namespace {

constexpr int kRowGrain = 16;  // rows worth a thread

// The two outer scales of a row or group with the given amax.
struct Outer {
    float encode, decode;  // Se and g = 1 / Se
};

Outer outer_of(float amax) {
    const float encode = amax == 0.0f ? 1.0f : std::min(2688.0f / amax, FLT_MAX);
    return {encode, 1.0f / encode};
}

// Eight values or codes at a time, in the vector types of g++ and clang++: left to itself a compiler unrolls the loops
// over a block into scalars.
typedef std::uint32_t Words __attribute__((vector_size(32)));
typedef std::int32_t Signed __attribute__((vector_size(32)));
typedef float Floats __attribute__((vector_size(32), aligned(4), may_alias));
constexpr Words kNibbles = {0, 4, 8, 12, 16, 20, 24, 28};  // the place of each code in a word of eight

// The codes of x[i] * inverse for a block: e2m1_encode of eight at a time, without its rule for NaN.
void encode_block(const float* x, float inverse, std::uint8_t* codes) {
    for (int half = 0; half < 2; ++half, codes += 4, x += 8) {
        const Words bits = (Words)(*reinterpret_cast<const Floats*>(x) * inverse);
        const Signed a = (Signed)(bits & 0x7FFFFFFFu);
        const Signed minus_magnitude = (a > 0x3E800000) + (a >= 0x3F400000) + (a > 0x3FA00000) + (a >= 0x3FE00000) +
                                       (a > 0x40200000) + (a >= 0x40600000) + (a > 0x40A00000);
        const Words placed = ((bits >> 31) << 3 | (Words)(-minus_magnitude)) << kNibbles;
        std::uint64_t two[4];
        std::memcpy(two, &placed, sizeof two);
        const std::uint64_t both = two[0] | two[1] | two[2] | two[3];
        const std::uint32_t word = static_cast<std::uint32_t>(both | both >> 32);
        for (int i = 0; i < 4; ++i) codes[i] = static_cast<std::uint8_t>(word >> (8 * i));
    }
}

// x[i] = (q_i * scale) * outer for the 16 codes of a block: e2m1_decode of eight at a time.
void decode_block(const std::uint8_t* codes, float scale, float outer, float* x) {
    for (int half = 0; half < 2; ++half, codes += 4, x += 8) {
        const std::uint32_t word = codes[0] | codes[1] << 8 | codes[2] << 16 | std::uint32_t{codes[3]} << 24;
        const Words code = word >> kNibbles, magnitude = code & 7u;
        const Words bits = magnitude < 2u ? magnitude * 0x3F000000u : (magnitude << 22) + (126u << 23);
        *reinterpret_cast<Floats*>(x) = (Floats)(bits | (code & 8u) << 28) * scale * outer;
    }
}

void quantize_block(const float* x, Outer outer, std::uint8_t* codes, std::uint8_t* scale_byte) {
    *scale_byte = e4m3_encode(float_from_bits(amax_bits(x, kBlock)) * (outer.encode * (1.0f / 6.0f)));
    const float scale = e4m3_decode(*scale_byte) * outer.decode;
    // A scale of 0 gives codes +0 whatever the values, where x * 0 would keep the sign of negative ones.
    if (scale == 0.0f) {
        std::fill_n(codes, kBlock / 2, std::uint8_t{0});
    } else {
        encode_block(x, std::min(1.0f / scale, FLT_MAX), codes);
    }
}

void quantize_row(const float* x, int K, Outer outer, std::uint8_t* codes, std::uint8_t* scales) {
    const int whole = K / kBlock;
    for (int b = 0; b < whole; ++b) quantize_block(x + b * kBlock, outer, codes + b * (kBlock / 2), scales + b);
    if (whole == blocks_of(K)) return;
    float last[kBlock] = {};
    std::copy(x + whole * kBlock, x + K, last);
    quantize_block(last, outer, codes + whole * (kBlock / 2), scales + whole);
}

// Outer scales of every row; rows of one group share theirs where the tensor says so. The outer scales that the tensor
// stores (one per row or group) are written to `stored` unless it is nullptr.
std::vector<Outer> outer_scales(const std::vector<float>& amax, Groups groups, OuterScale kind, float* stored) {
    std::vector<Outer> outer(amax.size());
    if (kind == OuterScale::row) {
        for (std::size_t m = 0; m < amax.size(); ++m) {
            outer[m] = outer_of(amax[m]);
            if (stored != nullptr) stored[m] = outer[m].decode;
        }
        return outer;
    }
    for (int e = 0; e < groups.E; ++e) {
        float largest = 0.0f;
        for (int m = groups.offsets[e]; m < groups.offsets[e + 1]; ++m) largest = std::max(largest, amax[m]);
        const Outer shared = outer_of(largest);
        std::fill(outer.begin() + groups.offsets[e], outer.begin() + groups.offsets[e + 1], shared);
        if (stored != nullptr) stored[e] = shared.decode;
    }
    return outer;
}

void quantize_rows(const float* x, const std::vector<Outer>& outer, int K, Nvfp4 out) {
    parallel_ranges(static_cast<int>(outer.size()), kRowGrain, [&](int begin, int end) {
        for (std::size_t m = begin; m < static_cast<std::size_t>(end); ++m) {
            quantize_row(x + m * K, K, outer[m], out.codes + m * code_bytes_of(K), out.scales + m * blocks_of(K));
        }
    });
}

// keep[k] = all ones if keys[k] is among the `count` largest keys, else 0; equal keys: the lower index comes first.
// A bisection over the bits of the smallest kept key needs no sort.
void mark_largest(const std::uint32_t* keys, int K, int count, std::uint32_t* keep) {
    std::uint32_t threshold = 0;  // the largest value that at least `count` keys reach
    int reached = K;
    for (int bit = 31; bit >= 0 && reached != count; --bit) {
        const std::uint32_t candidate = threshold | (1u << bit);
        int reach_candidate = 0;
        for (int k = 0; k < K; ++k) reach_candidate += keys[k] >= candidate;
        if (reach_candidate < count) continue;
        threshold = candidate;
        reached = reach_candidate;
    }
    for (int k = 0; k < K; ++k) keep[k] = keys[k] >= threshold ? 0xFFFFFFFFu : 0u;
    for (int k = K - 1; reached > count; --k) {  // more keys equal the threshold than there is room for
        if (keys[k] != threshold) continue;
        keep[k] = 0;
        --reached;
    }
}

// norms[e,k] = sum over the rows of group e, ascending, of r[m,k]^2. Threads take channels, so no sum is split.
std::vector<float> channel_norms(const float* r, Groups groups, int K) {
    std::vector<float> norms(static_cast<std::size_t>(groups.E) * K);
    constexpr int kChannels = 32;  // consecutive channels of one task
    const int tasks = (K + kChannels - 1) / kChannels;
    parallel_for(groups.E * tasks, 1, [&](int task) {
        const int e = task / tasks, first = task % tasks * kChannels;
        const int channels = std::min(kChannels, K - first);
        float sum[kChannels] = {};
        for (int m = groups.offsets[e]; m < groups.offsets[e + 1]; ++m) {
            const float* row = r + static_cast<std::size_t>(m) * K + first;
            for (int k = 0; k < channels; ++k) sum[k] = std::fma(row[k], row[k], sum[k]);
        }
        std::copy(sum, sum + channels, norms.data() + static_cast<std::size_t>(e) * K + first);
    });
    return norms;
}

// The channels kept in row m by the selections that look at one row, and in every row of a group by `batch`.
void mark_row(const float* r, int m, int K, int count, ResidualSelection selection, std::uint32_t* keep) {
    std::vector<std::uint32_t> keys(K);
    for (int k = 0; k < K; ++k) {
        const std::uint32_t row = m, channel = k;
        keys[k] = selection == ResidualSelection::token ? float_bits(r[k]) & 0x7FFFFFFFu
                                                        : philox4x32_10({{row, channel, 0, 0}}, 0x52414344u, 0).word[0];
    }
    mark_largest(keys.data(), K, count, keep);
}

std::vector<std::uint32_t> mark_groups(const float* r, Groups groups, int K, int count) {
    const std::vector<float> norms = channel_norms(r, groups, K);
    std::vector<std::uint32_t> keys(norms.size()), keep(norms.size());
    std::transform(norms.begin(), norms.end(), keys.begin(), float_bits);
    for (int e = 0; e < groups.E; ++e) {
        const std::size_t first = static_cast<std::size_t>(e) * K;
        mark_largest(keys.data() + first, K, count, keep.data() + first);
    }
    return keep;
}

// Sets the channels of r that RAC does not compensate to +0.
void drop_channels(float* r, Groups groups, int M, int K, int count, ResidualSelection selection) {
    const auto apply = [K](const std::uint32_t* keep, float* row) {
        for (int k = 0; k < K; ++k) row[k] = float_from_bits(float_bits(row[k]) & keep[k]);
    };
    if (selection == ResidualSelection::batch) {
        const std::vector<std::uint32_t> keep = mark_groups(r, groups, K, count);
        for (int e = 0; e < groups.E; ++e) {
            const int first = groups.offsets[e];
            parallel_for(groups.offsets[e + 1] - first, kRowGrain, [&](int m) {
                apply(keep.data() + static_cast<std::size_t>(e) * K, r + static_cast<std::size_t>(first + m) * K);
            });
        }
        return;
    }
    parallel_ranges(M, kRowGrain, [&](int begin, int end) {
        std::vector<std::uint32_t> keep(K);
        for (int m = begin; m < end; ++m) {
            float* row = r + static_cast<std::size_t>(m) * K;
            mark_row(row, m, K, count, selection, keep.data());
            apply(keep.data(), row);
        }
    });
}

}  // namespace

void quantize_nvfp4(const float* x, Groups groups, int M, int K, Nvfp4 out) {
    const std::vector<float> amax = finite_row_amax(x, M, K, "NVFP4");
    quantize_rows(x, outer_scales(amax, groups, out.outer_scale, out.outer), K, out);
}

void dequantize_nvfp4(Nvfp4 q, Groups groups, int, int K, bool with_outer, float* x) {
    check(K >= 1, "NVFP4 needs at least one column, but K is ", K, ". Pass a matrix with columns.");
    for (int e = 0; e < groups.E; ++e) {
        const int first = groups.offsets[e];
        parallel_ranges(groups.offsets[e + 1] - first, kRowGrain, [&](int begin, int end) {
            for (std::size_t m = first + begin; m < static_cast<std::size_t>(first + end); ++m) {
                const std::uint8_t* codes = q.codes + m * code_bytes_of(K);
                const float outer = !with_outer ? 1.0f : q.outer_scale == OuterScale::row ? q.outer[m] : q.outer[e];
                for (int b = 0; b < blocks_of(K); ++b) {
                    const float scale = e4m3_decode(q.scales[m * blocks_of(K) + b]);
                    float* block = x + m * K + b * kBlock;
                    if ((b + 1) * kBlock <= K) {
                        decode_block(codes + b * (kBlock / 2), scale, outer, block);
                    } else {  // the padding is decoded beside x
                        float last[kBlock];
                        decode_block(codes + b * (kBlock / 2), scale, outer, last);
                        std::copy_n(last, K - b * kBlock, block);
                    }
                }
            }
        });
    }
}

void quantize_nvfp4_residual(const float* x, Nvfp4 main, Groups groups, int M, int K, float ratio,
                             ResidualSelection selection, Nvfp4 residual) {
    check(ratio >= 0.0f && ratio <= 1.0f, "The residual ratio must lie in 0 .. 1, but it is ", ratio, ".");
    const std::vector<float> amax = finite_row_amax(x, M, K, "NVFP4");
    const std::vector<Outer> outer = outer_scales(amax, groups, main.outer_scale, nullptr);
    float* r = scratch<struct ResidualOfRows>(static_cast<std::size_t>(M) * K);
    dequantize_nvfp4(main, groups, M, K, true, r);
    parallel_for(M, kRowGrain, [&](int m) {
        const std::size_t first = static_cast<std::size_t>(m) * K;
        for (int k = 0; k < K; ++k) r[first + k] = x[first + k] - r[first + k];
    });
    drop_channels(r, groups, M, K, residual_channels(ratio, K), selection);
    quantize_rows(r, outer, K, residual);
}

void count_code_flips(const float* a, const float* b, int M, int K, int* flips) {
    const std::vector<float> amax_a = finite_row_amax(a, M, K, "NVFP4"), amax_b = finite_row_amax(b, M, K, "NVFP4");
    parallel_ranges(M, kRowGrain, [&](int begin, int end) {
        std::vector<std::uint8_t> codes_a(code_bytes_of(K)), codes_b(code_bytes_of(K)), scales(blocks_of(K));
        for (int m = begin; m < end; ++m) {
            const std::size_t first = static_cast<std::size_t>(m) * K;
            quantize_row(a + first, K, outer_of(amax_a[m]), codes_a.data(), scales.data());
            quantize_row(b + first, K, outer_of(amax_b[m]), codes_b.data(), scales.data());
            flips[m] = 0;
            for (int i = 0; i < code_bytes_of(K); ++i) {  // the padding has codes 0 on both sides
                const int different = codes_a[i] ^ codes_b[i];
                flips[m] += ((different & 0x0F) != 0) + ((different & 0xF0) != 0);
            }
        }
    });
}

}  // namespace quads::reference
