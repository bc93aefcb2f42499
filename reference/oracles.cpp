// Nothing here uses the codecs or GEMMs it is meant to check: values are taken apart into integers on their own.
#include "reference/oracles.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "reference/check.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

constexpr int kDoubledE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

int code(const std::uint8_t* block, int i) { return i % 2 == 0 ? block[i / 2] & 15 : block[i / 2] >> 4; }

// 4 * the dot of two blocks of 16 packed codes.
std::int64_t dot4(const std::uint8_t* x, const std::uint8_t* w) {
    std::int64_t sum = 0;
    for (int i = 0; i < kBlock; ++i) sum += kDoubledE2m1[code(x, i)] * kDoubledE2m1[code(w, i)];
    return sum;
}

// An unsigned E4M3 scale is significand * 2^(exponent - 3).
struct Scale {
    std::int64_t significand;
    int exponent;
};

Scale take_apart(std::uint8_t scale) {
    const int field = (scale >> 3) & 15, mantissa = scale & 7;
    return field == 0 ? Scale{mantissa, -6} : Scale{8 + mantissa, field - 7};
}

std::int64_t units_of_2_minus_9(std::uint8_t scale) {
    const Scale s = take_apart(scale);
    return s.significand << (s.exponent + 6);
}

// body(m, n, e) for every output, rows in parallel.
template <typename Body>
void for_outputs(Groups groups, int N, const Body& body) {
    for (int e = 0; e < groups.E; ++e) {
        const int first = groups.offsets[e];
        parallel_for(groups.offsets[e + 1] - first, 1, [&](int i) {
            for (int n = 0; n < N; ++n) body(static_cast<std::size_t>(first + i), static_cast<std::size_t>(n), e);
        });
    }
}

const std::uint8_t* block_codes(const Nvfp4& q, std::size_t block) { return q.codes + block * (kBlock / 2); }

// units * 2^(exponent - F) is the value of a term.
struct Term {
    std::int64_t units;
    int exponent;
    bool counts;  // takes part in the choice of the largest exponent
};

float pattern(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// units * 2^exponent, truncated toward 0 to FP32.
float truncate_to_float(std::int64_t units, int exponent) {
    if (units == 0) return 0.0f;
    const std::int64_t magnitude = std::abs(units);
    int top = 62;
    while ((magnitude >> top) == 0) --top;
    const int last = std::max(top + exponent - 23, -149);  // exponent of the result's last bit
    const int drop = last - exponent;
    const std::int64_t kept = drop <= 0 ? magnitude << -drop : drop > 62 ? 0 : magnitude >> drop;
    const double value = std::ldexp(static_cast<double>(kept), last);
    return static_cast<float>(units < 0 ? -value : value);
}

float fused_dot_add(const std::vector<Term>& terms, int fraction_bits) {
    int largest = -1000;
    for (const Term& term : terms) largest = term.counts ? std::max(largest, term.exponent) : largest;
    std::int64_t sum = 0;
    for (const Term& term : terms) {
        const int shift = std::min(largest - term.exponent, 62);
        if (term.counts) sum += term.units < 0 ? -(-term.units >> shift) : term.units >> shift;
    }
    return truncate_to_float(sum, largest - fraction_bits);
}

// A float as significand * 2^(exponent - bits), with the given number of significand bits below the leading one.
Term take_apart(float x, int bits) {
    std::uint32_t word;
    std::memcpy(&word, &x, sizeof word);
    const int field = static_cast<int>(word >> 23) & 255;
    const std::int64_t mantissa = (field == 0 ? 0 : 1 << 23) | static_cast<int>(word & 0x7FFFFFu);
    const std::int64_t significand = mantissa >> (23 - bits);
    return {(word >> 31) != 0 ? -significand : significand, std::max(field, 1) - 127, significand != 0};
}

Term accumulator_term(float c, int fraction_bits) {
    Term term = take_apart(c, 23);
    term.units *= std::int64_t{1} << (fraction_bits - 23);
    return term;
}

// One m16n8k16 step: c + sum of n <= 16 products.
float hopper_step(const float* x, const float* w, int n, float c) {
    constexpr int kFraction = 25;
    std::vector<Term> terms{accumulator_term(c, kFraction)};
    double plain = c;  // tells Inf and NaN; finite products of BF16 values cannot overflow a double
    for (int k = 0; k < n; ++k) {
        const Term a = take_apart(x[k], 7), b = take_apart(w[k], 7);
        terms.push_back({a.units * b.units * (1 << (kFraction - 14)), a.exponent + b.exponent, a.counts && b.counts});
        plain += static_cast<double>(x[k]) * w[k];
    }
    if (std::isnan(plain)) return pattern(0x7FFFFFFFu);
    return std::isinf(plain) ? static_cast<float>(plain) : fused_dot_add(terms, kFraction);
}

// One m16n8k64 step from block b of rows that start at blocks x_row and w_row: c + sum of at most four block terms.
float blackwell_step(const Nvfp4& x, std::size_t x_row, const Nvfp4& w, std::size_t w_row, int b, int blocks, float c) {
    constexpr int kFraction = 35;
    std::vector<Term> terms{accumulator_term(c, kFraction)};
    for (int i = b; i < std::min(b + 4, blocks); ++i) {
        const std::uint8_t sx = x.scales[x_row + i] & 0x7F, sw = w.scales[w_row + i] & 0x7F;
        if (sx == 0x7F || sw == 0x7F || std::isnan(c)) return pattern(0x7FFFFFFFu);
        const Scale a = take_apart(sx), s = take_apart(sw);
        const std::int64_t significand = a.significand * s.significand;  // times 2^-6, and the dot times 2^-2
        terms.push_back({dot4(block_codes(x, x_row + i), block_codes(w, w_row + i)) * significand *
                             (std::int64_t{1} << (kFraction - 8)),
                         a.exponent + s.exponent, significand != 0});
    }
    return fused_dot_add(terms, kFraction);
}

}  // namespace

void gemm_w4a4_exact(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int, int N, int K, std::int64_t* sum,
                     std::int64_t* magnitude) {
    const std::size_t blocks = blocks_of(K);
    check(K >= 1 && blocks <= 32768, "The exact GEMM takes 1 to 32768 blocks of 16 columns, but K is ", K, ".");
    for_outputs(groups, N, [&](std::size_t m, std::size_t n, int e) {
        std::int64_t total = 0, absolute = 0;
        for (std::size_t b = 0; b < blocks; ++b) {
            const std::size_t xb = m * blocks + b, wb = (static_cast<std::size_t>(e) * N + n) * blocks + b;
            for (const Nvfp4* side : {static_cast<const Nvfp4*>(&x), residual}) {
                if (side == nullptr) continue;
                // dot4 has the unit 2^-2 and each scale 2^-9: together 2^-20.
                const std::int64_t term = dot4(block_codes(*side, xb), block_codes(w, wb)) *
                                          units_of_2_minus_9(side->scales[xb]) * units_of_2_minus_9(w.scales[wb]);
                total += term;
                absolute += std::abs(term);
            }
        }
        sum[m * N + n] = total;
        magnitude[m * N + n] = absolute;
    });
}

void gemm_bf16_tensor_core(const float* x, const float* w, const float* w_outer, Groups groups, int, int N, int K,
                           float* y) {
    constexpr int kStep = 16;
    for_outputs(groups, N, [&](std::size_t m, std::size_t n, int e) {
        const float* x_row = x + m * K;
        const float* w_row = w + (static_cast<std::size_t>(e) * N + n) * K;
        float c = 0.0f;
        for (int k = 0; k < K; k += kStep) c = hopper_step(x_row + k, w_row + k, std::min(kStep, K - k), c);
        y[m * N + n] = w_outer != nullptr ? c * w_outer[e] : c;
    });
}

void gemm_w4a4_tensor_core(Nvfp4 x, Nvfp4 w, Groups groups, int, int N, int K, float* y) {
    check(K >= 1, "A W4A4 GEMM needs at least one column, but K is ", K, ". Pass matrices with columns.");
    const int blocks = blocks_of(K);
    for_outputs(groups, N, [&](std::size_t m, std::size_t n, int e) {
        const std::size_t x_row = m * blocks, w_row = (static_cast<std::size_t>(e) * N + n) * blocks;
        float c = 0.0f;
        for (int b = 0; b < blocks; b += 4) c = blackwell_step(x, x_row, w, w_row, b, blocks, c);
        y[m * N + n] = c * ((x.outer_scale == OuterScale::row ? x.outer[m] : x.outer[e]) * w.outer[e]);
    });
}

}  // namespace quads::reference
