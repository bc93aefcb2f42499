// Owners of packed tensors for the tests, and the quantiser of the contract spelled out a second time.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/nvfp4.hpp"
#include "tests/arrays.hpp"
#include "tests/literal_codec.hpp"

using Bytes = std::vector<std::uint8_t>;

// Offsets of consecutive groups with the given numbers of rows.
struct GroupRows {
    explicit GroupRows(const Ints& rows) : offsets{0} {
        for (const int count : rows) offsets.push_back(offsets.back() + count);
    }
    quads::Groups view() const { return {offsets.data(), static_cast<int>(offsets.size()) - 1}; }
    int rows() const { return offsets.back(); }
    int group_of(int row) const {
        int e = 0;
        while (row >= offsets[e + 1]) ++e;
        return e;
    }
    Ints offsets;
};

// A packed tensor whose every byte starts as 0xA5 and every outer scale as NaN, so that what is not written shows.
struct Packed {
    Packed(int M, int K, int E, quads::OuterScale kind)
        : codes(static_cast<std::size_t>(M) * quads::code_bytes_of(K), 0xA5),
          scales(static_cast<std::size_t>(M) * quads::blocks_of(K), 0xA5),
          outer(kind == quads::OuterScale::row ? M : E, NAN),
          outer_scale(kind) {}
    quads::Nvfp4 view() { return {codes.data(), scales.data(), outer.data(), outer_scale}; }

    Bytes codes, scales;
    Floats outer;
    quads::OuterScale outer_scale;
};

inline Packed quantized(const Floats& x, const GroupRows& groups, int K, quads::OuterScale kind) {
    Packed packed(groups.rows(), K, groups.view().E, kind);
    quads::reference::quantize_nvfp4(x.data(), groups.view(), groups.rows(), K, packed.view());
    return packed;
}

// Values of very different sizes within a block and between blocks, some exactly 0: mean magnitude about `scale` / 4.
inline Floats spread_floats(std::size_t n, std::uint32_t seed, float scale = 1.0f) {
    const Floats u = random_floats(n, seed), v = random_floats((n + 15) / 16, seed + 1);
    Floats x(n);
    for (std::size_t i = 0; i < n; ++i) {
        x[i] = std::fabs(u[i]) < 0.02f ? 0.0f : u[i] * u[i] * u[i] * scale * std::exp2(std::floor(8.0f * v[i / 16]));
    }
    return x;
}

namespace literal {

inline float amax(const Floats& x, std::size_t begin, std::size_t end) {
    float largest = 0.0f;
    for (std::size_t i = begin; i < end; ++i) largest = std::fmax(largest, std::fabs(x[i]));
    return largest;
}

// Se of a row or group.
inline float encode_scale(float amax) { return amax == 0.0f ? 1.0f : std::fmin(2688.0f / amax, FLT_MAX); }

// One row of the contract's section 2 with a given Se, into row m of `packed`.
inline void quantize_row(const Floats& x, int m, int K, float Se, Packed& packed) {
    const float g = 1.0f / Se;
    for (int b = 0; b < quads::blocks_of(K); ++b) {
        const std::size_t row = static_cast<std::size_t>(m) * K;
        const std::size_t first = row + b * 16, last = std::min(first + 16, row + K);
        const std::size_t block = static_cast<std::size_t>(m) * quads::blocks_of(K) + b;
        const float sixth = 1.0f / 6.0f;
        const float folded = Se * sixth;
        const std::uint8_t s = e4m3_encode(amax(x, first, last) * folded);
        const float decoded = e4m3_decode(s) * g;
        const float inverse = std::fmin(1.0f / decoded, FLT_MAX);
        packed.scales[block] = s;
        for (int i = 0; i < 16; ++i) {
            const bool padding = first + i >= last;
            const float scaled = padding || s == 0 ? 0.0f : x[first + i] * inverse;
            const int code = e2m1_encode(std::fmax(-6.0f, std::fmin(6.0f, scaled)));
            std::uint8_t& byte = packed.codes[block * 8 + i / 2];
            byte = static_cast<std::uint8_t>(i % 2 == 0 ? code : byte | code << 4);
        }
    }
}

// Se of every row.
inline Floats encode_scales(const Floats& x, const GroupRows& groups, int K, quads::OuterScale kind) {
    Floats Se;
    for (int m = 0; m < groups.rows(); ++m) {
        const int e = groups.group_of(m);
        const bool row = kind == quads::OuterScale::row;
        const std::size_t begin = row ? m : groups.offsets[e], end = row ? m + 1 : groups.offsets[e + 1];
        Se.push_back(encode_scale(amax(x, begin * K, end * K)));
    }
    return Se;
}

inline Packed quantized(const Floats& x, const GroupRows& groups, int K, quads::OuterScale kind) {
    Packed packed(groups.rows(), K, groups.view().E, kind);
    const Floats Se = encode_scales(x, groups, K, kind);
    if (kind == quads::OuterScale::group) packed.outer.assign(packed.outer.size(), 1.0f);  // what an empty group keeps
    for (int m = 0; m < groups.rows(); ++m) {
        quantize_row(x, m, K, Se[m], packed);
        packed.outer[kind == quads::OuterScale::row ? m : groups.group_of(m)] = 1.0f / Se[m];
    }
    return packed;
}

// (q * s) * g of one element.
inline float value(const Packed& packed, const GroupRows& groups, int m, int k, int K) {
    const std::size_t block = static_cast<std::size_t>(m) * quads::blocks_of(K) + k / 16;
    const int byte = packed.codes[block * 8 + k % 16 / 2];
    const float q = e2m1_decode(k % 2 == 0 ? byte & 15 : byte >> 4);
    const float exact = q * e4m3_decode(packed.scales[block]);
    return exact * packed.outer[packed.outer_scale == quads::OuterScale::row ? m : groups.group_of(m)];
}

}  // namespace literal
