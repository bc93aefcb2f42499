#include "reference/nvfp4.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "reference/amax.hpp"
#include "reference/check.hpp"
#include "reference/codec.hpp"
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

// The 16 values of block b of a row, zeros beyond column K.
void load_block(const float* row, int b, int K, float* block) {
    const int columns = std::min(kBlock, K - b * kBlock);
    std::memcpy(block, row + b * kBlock, columns * sizeof(float));
    std::fill(block + columns, block + kBlock, 0.0f);
}

void quantize_row(const float* x, int K, Outer outer, std::uint8_t* codes, std::uint8_t* scales) {
    const float scale_factor = outer.encode * (1.0f / 6.0f);
    for (int b = 0; b < blocks_of(K); ++b) {
        float block[kBlock];
        load_block(x, b, K, block);
        scales[b] = e4m3_encode(float_from_bits(amax_bits(block, kBlock)) * scale_factor);
        // A scale of 0 gives codes +0 whatever the values: x * 0 would keep the sign of negative ones.
        const bool zero = scales[b] == 0;
        const float inverse = zero ? 0.0f : std::min(1.0f / (e4m3_decode(scales[b]) * outer.decode), FLT_MAX);
        std::uint8_t code[kBlock];
        for (int i = 0; i < kBlock; ++i) code[i] = e2m1_encode(zero ? 0.0f : block[i] * inverse);  // clamps to +-6
        for (int i = 0; i < kBlock / 2; ++i) codes[b * (kBlock / 2) + i] = pack_codes(code[2 * i], code[2 * i + 1]);
    }
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
    parallel_for(static_cast<int>(outer.size()), kRowGrain, [&](int m) {
        const std::size_t row = m;
        quantize_row(x + row * K, K, outer[m], out.codes + row * code_bytes_of(K), out.scales + row * blocks_of(K));
    });
}

void dequantize_row(const std::uint8_t* codes, const std::uint8_t* scales, int K, float outer, float* x) {
    for (int b = 0; b < blocks_of(K); ++b) {
        const float scale = e4m3_decode(scales[b]);
        float block[kBlock];
        for (int i = 0; i < kBlock; ++i) {
            const float q = e2m1_decode(code_at(codes + b * (kBlock / 2), i));
            block[i] = (q * scale) * outer;
        }
        std::memcpy(x + b * kBlock, block, std::min(kBlock, K - b * kBlock) * sizeof(float));
    }
}

// keep[k] = all ones if keys[k] is among the `count` largest keys, else 0; equal keys: the lower index comes first.
// A bisection over the bits of the smallest kept key needs no sort.
void mark_largest(const std::uint32_t* keys, int K, int count, std::uint32_t* keep) {
    std::uint32_t threshold = 0;  // the largest value that at least `count` keys reach
    for (int bit = 31; bit >= 0; --bit) {
        const std::uint32_t candidate = threshold | (1u << bit);
        int reached = 0;
        for (int k = 0; k < K; ++k) reached += keys[k] >= candidate;
        if (reached >= count) threshold = candidate;
    }
    int above = 0;
    for (int k = 0; k < K; ++k) above += keys[k] > threshold;
    int equal_left = count - above;
    for (int k = 0; k < K; ++k) {
        const bool kept = keys[k] > threshold || (keys[k] == threshold && equal_left-- > 0);
        keep[k] = kept ? 0xFFFFFFFFu : 0u;
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
        parallel_for(groups.offsets[e + 1] - first, kRowGrain, [&](int i) {
            const std::size_t m = first + i;
            const float outer = q.outer_scale == OuterScale::row ? q.outer[m] : q.outer[e];
            dequantize_row(q.codes + m * code_bytes_of(K), q.scales + m * blocks_of(K), K, with_outer ? outer : 1.0f,
                           x + m * K);
        });
    }
}

void quantize_nvfp4_residual(const float* x, Nvfp4 main, Groups groups, int M, int K, float ratio,
                             ResidualSelection selection, Nvfp4 residual) {
    check(ratio >= 0.0f && ratio <= 1.0f, "The residual ratio must lie in 0 .. 1, but it is ", ratio, ".");
    const std::vector<float> amax = finite_row_amax(x, M, K, "NVFP4");
    const std::vector<Outer> outer = outer_scales(amax, groups, main.outer_scale, nullptr);
    std::vector<float> r(static_cast<std::size_t>(M) * K);
    dequantize_nvfp4(main, groups, M, K, true, r.data());
    parallel_for(M, kRowGrain, [&](int m) {
        const std::size_t first = static_cast<std::size_t>(m) * K;
        for (int k = 0; k < K; ++k) r[first + k] = x[first + k] - r[first + k];
    });
    drop_channels(r.data(), groups, M, K, residual_channels(ratio, K), selection);
    quantize_rows(r.data(), outer, K, residual);
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
            for (int k = 0; k < K; ++k) flips[m] += code_at(codes_a.data(), k) != code_at(codes_b.data(), k);
        }
    });
}

}  // namespace quads::reference
