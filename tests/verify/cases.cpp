// Inputs that tell right from almost right. Random values alone do not: the usual NVFP4 recipes agree on all of them.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>

#include "reference/codec.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_w4a4.hpp"
#include "reference/nvfp4.hpp"
#include "reference/rmsnorm.hpp"
#include "reference/router.hpp"
#include "tests/verify/operations.hpp"

using namespace quads;

namespace verify {
namespace {

class Random {
public:
    explicit Random(std::uint32_t seed) : words_(seed) {}
    int below(int n) { return static_cast<int>(words_() % static_cast<std::uint32_t>(n)); }
    float signed_unit() { return static_cast<float>(words_() * 0x1p-31 - 1.0); }

private:
    std::mt19937 words_;
};

// --- Matrices of floats, for the quantiser ---

void random_values(float* x, int M, int K, Random& random) {
    for (int i = 0; i < M * K; ++i) x[i] = random.signed_unit();
}

// The row's largest value is 2688, so g = 1, and the other blocks' 6, so s = 1: each value is a tie between two codes.
void ties(float* x, int M, int K, Random& random) {
    const float tie[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    for (int i = 0; i < M * K; ++i) {
        const int k = i % K;
        const float value = k == 0 ? 2688.0f : k % kBlock == 0 ? 6.0f : tie[random.below(7)];
        x[i] = random.below(2) ? value : -value;
    }
}

// a * Se / 6 lies halfway between two E4M3 values, in normal and subnormal scales.
void scale_ties(float* x, int M, int K, Random& random) {
    float halfway = 1.0f;
    for (int i = 0; i < M * K; ++i) {
        const int k = i % K;
        if (k % kBlock == 0) {
            const int j = random.below(8), exponent = random.below(15);
            halfway =
                exponent == 0 ? (2 * j + 1) * 0x1p-10f : std::ldexp(static_cast<float>(2 * j + 17), exponent - 10);
        }
        x[i] = k == 0 ? 2688.0f : k % kBlock == 0 ? halfway * 6 : halfway * random.signed_unit();
    }
}

void distinct_scales(float* x, int M, int K, Random& random) {
    for (int i = 0; i < M * K; ++i) x[i] = std::ldexp(random.signed_unit(), (i % K) / kBlock % 9 - 4 + random.below(2));
}

void zero_blocks(float* x, int M, int K, Random& random) {
    for (int i = 0; i < M * K; ++i) {
        const bool zero = i / K == 0 || (i % K / kBlock + i / K) % 2 == 0;
        x[i] = zero ? (random.below(2) ? 0.0f : -0.0f) : random.signed_unit();
    }
}

// Blocks far below the row's largest value: their scales are subnormal, or round to 0.
void subnormal_scales(float* x, int M, int K, Random& random) {
    for (int i = 0; i < M * K; ++i) {
        x[i] = i % K == 0 ? 1.0f : std::ldexp(random.signed_unit(), -13 - (i % K / kBlock + i / K) % 9);
    }
}

// Each row its own magnitude, to the ends of FP32.
void dynamic_range(float* x, int M, int K, Random& random) {
    const int exponent[] = {127, 100, 30, 0, -30, -100, -126, -140};
    for (int i = 0; i < M * K; ++i) x[i] = std::ldexp(random.signed_unit(), exponent[i / K % 8]);
}

void signed_zeros(float* x, int M, int K, Random& random) {
    for (int i = 0; i < M * K; ++i)
        x[i] = i % K == 0 ? 6.0f : std::copysign(0.1f * random.below(2), random.signed_unit());
}

// Amax pairs (row, block) for which the order of the operations decides a rounding.
void operation_order(float* x, int M, int K, Random& random) {
    for (int m = 0; m < M; ++m) {
        const float row = 1.0f + random.below(128) / 128.0f;
        const float pairs[][3] = {{1.015625f, 0.76171875f, 0.380859375f},
                                  {1.03125f, 0.63671875f, -0.193359375f},
                                  {1.015625f, 0.63671875f, 0.380859375f},
                                  {row, row * 0.75f, row / 3}};
        const float* pair = pairs[m % 4];
        for (int k = 0; k < K; ++k) {
            const int place = k % kBlock;
            const float block = k < kBlock ? pair[0] : pair[1];
            x[m * K + k] = place == 0 ? block : place == 1 ? pair[2] : block * random.below(9) / 8;
        }
    }
}

struct Fill {
    const char* name;
    void (*fill)(float* x, int M, int K, Random& random);
};
constexpr Fill kFills[] = {{"random", random_values},
                           {"ties", ties},
                           {"ties of scales", scale_ties},
                           {"distinct scales", distinct_scales},
                           {"zero blocks", zero_blocks},
                           {"subnormal scales", subnormal_scales},
                           {"dynamic range", dynamic_range},
                           {"signed zeros", signed_zeros},
                           {"order of operations", operation_order}};

constexpr int kMatrixSizes[][2] = {{1, 1},   {1, 17},  {15, 16},  {16, 15},   {17, 33}, {31, 32},
                                   {33, 31}, {4, 128}, {127, 17}, {128, 129}, {3, 127}, {2, 512}};
constexpr int kGemmSizes[][3] = {{1, 1, 1},     {1, 17, 16},   {15, 1, 17},  {16, 16, 32}, {17, 33, 15}, {31, 32, 33},
                                 {33, 15, 127}, {127, 7, 129}, {9, 128, 64}, {2, 3, 1024}, {3, 129, 128}};

// --- Packed matrices ---

// Places of the three arrays of a packed matrix among a case's inputs.
Nvfp4 packed(Arrays& arrays, int first, OuterScale outer_scale) {
    return {arrays[first].as<std::uint8_t>(), arrays[first + 1].as<std::uint8_t>(),
            arrays.size() > std::size_t(first) + 2 ? arrays[first + 2].as<float>() : nullptr, outer_scale};
}

void add_packed(Arrays& arrays, const char* const (&names)[3], int rows, int K, int outer) {
    arrays.emplace_back(names[0], Type::codes, rows, code_bytes_of(K));
    arrays.emplace_back(names[1], Type::byte, rows, blocks_of(K));
    if (outer > 0) arrays.emplace_back(names[2], Type::real, 1, outer);
}

// Any codes under any scales, which no quantiser would produce; or dots of 540.25 and more, multiples of 1/4 that
// need 12 bits. The padding is 0.
enum class Bytes { any, large };

void fill_packed(Arrays& arrays, int first, int rows, int K, Bytes kind, Random& random) {
    std::uint8_t* codes = arrays[first].as<std::uint8_t>();
    for (int m = 0; m < rows; ++m) {
        const int sign = 8 * random.below(2);
        for (int k = 0; k < K; ++k) {
            const int large = sign + (k % kBlock == 5 ? 1 + 2 * random.below(2) : 7);
            const int code = kind == Bytes::any ? random.below(16) : large;
            codes[m * code_bytes_of(K) + k / 2] |= static_cast<std::uint8_t>(code << (4 * (k & 1)));
        }
        for (int b = 0; b < blocks_of(K); ++b) {
            arrays[first + 1].as<std::uint8_t>()[m * blocks_of(K) + b] =
                static_cast<std::uint8_t>(kind == Bytes::any ? random.below(0x7F) : 0x30 + random.below(16));
        }
    }
}

void fill_outer(Array& outer, Random& random) {
    for (int i = 0; i < outer.columns; ++i)
        outer.as<float>()[i] = std::ldexp(1.5f + random.signed_unit() / 3, -random.below(9));
}

// x quantised by the reference from a fill, w from random values; or both of arbitrary bytes.
std::vector<Case> gemm_cases(bool residual) {
    std::vector<Case> cases;
    std::uint32_t seed = 0;
    const auto add = [&](const char* name, const int(&size)[3], const auto& fill) {
        const int M = size[0], N = size[1], K = size[2];
        Case c{name, {M, N, K}, {}, {}};
        add_packed(c.in, {"x_codes", "x_scales", "x_outer"}, M, K, M);
        if (residual) add_packed(c.in, {"residual_codes", "residual_scales", ""}, M, K, 0);
        const int w = static_cast<int>(c.in.size());
        add_packed(c.in, {"w_codes", "w_scales", "w_outer"}, N, K, 1);
        Random random(++seed);
        fill(c, w, random);
        c.out.emplace_back("y", Type::real, M, N);
        const int offsets[] = {0, M};
        const Nvfp4 xp = packed(c.in, 0, OuterScale::row), wp = packed(c.in, w, OuterScale::group);
        if (residual) {
            reference::gemm_w4a4_residual(xp, packed(c.in, 3, OuterScale::row), wp, {offsets, 1}, M, N, K,
                                          c.out[0].as<float>());
        } else {
            reference::gemm_w4a4(xp, wp, {offsets, 1}, M, N, K, c.out[0].as<float>());
        }
        cases.push_back(std::move(c));
    };
    const auto from_bytes = [&](Bytes kind) {
        return [=](Case& c, int w, Random& random) {
            fill_packed(c.in, 0, c.size[0], c.size[2], kind, random);
            if (residual) fill_packed(c.in, 3, c.size[0], c.size[2], kind, random);
            fill_packed(c.in, w, c.size[1], c.size[2], kind, random);
            fill_outer(c.in[2], random);
            fill_outer(c.in[w + 2], random);
        };
    };
    const auto quantized = [&](const Fill& fill) {
        return [=](Case& c, int w, Random& random) {
            const int M = c.size[0], N = c.size[1], K = c.size[2];
            std::vector<float> x(std::size_t(M) * K), weights(std::size_t(N) * K);
            fill.fill(x.data(), M, K, random);
            random_values(weights.data(), N, K, random);
            const int offsets[] = {0, M}, w_offsets[] = {0, N};
            const Nvfp4 main = packed(c.in, 0, OuterScale::row);
            reference::quantize_nvfp4(x.data(), {offsets, 1}, M, K, main);
            reference::quantize_nvfp4(weights.data(), {w_offsets, 1}, N, K, packed(c.in, w, OuterScale::group));
            if (!residual) return;
            reference::quantize_nvfp4_residual(x.data(), main, {offsets, 1}, M, K, 0.5f, ResidualSelection::batch,
                                               packed(c.in, 3, OuterScale::row));
        };
    };
    for (const auto& size : kGemmSizes) {
        add("any bytes", size, from_bytes(Bytes::any));
        add("large sums", size, from_bytes(Bytes::large));
        add("distinct scales", size, quantized(kFills[3]));
    }
    for (const Fill& fill : kFills) add(fill.name, kGemmSizes[6], quantized(fill));
    return cases;
}

float to_bf16_range(float x) {
    return x == 0.0f ? 0.0f : std::ldexp(x, std::clamp(std::ilogb(x), -40, 40) - std::ilogb(x));
}

}  // namespace

int size_of(Type type) { return type == Type::codes || type == Type::byte ? 1 : type == Type::bf16 ? 2 : 4; }

std::vector<Case> quantize_cases() {
    std::vector<Case> cases;
    std::uint32_t seed = 0;
    for (const Fill& fill : kFills) {
        for (const auto& [M, K] : kMatrixSizes) {
            Case c{fill.name, {M, K, 0}, {}, {}};
            c.in.emplace_back("x", Type::real, M, K);
            Random random(++seed);
            fill.fill(c.in[0].as<float>(), M, K, random);
            add_packed(c.out, {"codes", "scales", "outer"}, M, K, M);
            const int offsets[] = {0, M};
            reference::quantize_nvfp4(c.in[0].as<float>(), {offsets, 1}, M, K, packed(c.out, 0, OuterScale::row));
            cases.push_back(std::move(c));
        }
    }
    return cases;
}

std::vector<Case> dequantize_cases() {
    std::vector<Case> cases;
    std::uint32_t seed = 0;
    for (const auto& [M, K] : kMatrixSizes) {
        Case c{"any bytes", {M, K, 0}, {}, {}};
        add_packed(c.in, {"codes", "scales", "outer"}, M, K, M);
        Random random(++seed);
        fill_packed(c.in, 0, M, K, Bytes::any, random);
        fill_outer(c.in[2], random);
        c.out.emplace_back("x", Type::real, M, K);
        const int offsets[] = {0, M};
        reference::dequantize_nvfp4(packed(c.in, 0, OuterScale::row), {offsets, 1}, M, K, true, c.out[0].as<float>());
        cases.push_back(std::move(c));
    }
    return cases;
}

std::vector<Case> gemm_w4a4_cases() { return gemm_cases(false); }
std::vector<Case> gemm_w4a4_residual_cases() { return gemm_cases(true); }

std::vector<Case> gemm_bf16_cases() {
    std::vector<Case> cases;
    std::uint32_t seed = 0;
    for (const Fill& fill : {kFills[0], kFills[3], kFills[4], kFills[6]}) {
        for (const auto& [M, N, K] : kGemmSizes) {
            Case c{fill.name, {M, N, K}, {}, {}};
            Random random(++seed);
            std::vector<float> x(M * K), w(N * K);
            fill.fill(x.data(), M, K, random);
            random_values(w.data(), N, K, random);
            for (float& value : x) value = bf16_round(to_bf16_range(value));
            for (float& value : w) value = bf16_round(value);
            c.in.emplace_back("x", Type::bf16, M, K);
            c.in.emplace_back("w", Type::bf16, N, K);
            std::transform(x.begin(), x.end(), c.in[0].as<std::uint16_t>(), bf16_bits);
            std::transform(w.begin(), w.end(), c.in[1].as<std::uint16_t>(), bf16_bits);
            c.out.emplace_back("y", Type::real, M, N);
            const int offsets[] = {0, M};
            reference::gemm_bf16(x.data(), w.data(), nullptr, {offsets, 1}, M, N, K, c.out[0].as<float>());
            cases.push_back(std::move(c));
        }
    }
    return cases;
}

std::vector<Case> rmsnorm_cases() {
    std::vector<Case> cases;
    std::uint32_t seed = 0;
    for (const Fill& fill : {kFills[0], kFills[3], kFills[4], kFills[5]}) {
        for (const auto& [T, D] : kMatrixSizes) {
            Case c{fill.name, {T, D, 0}, {}, {}};
            c.in.emplace_back("x", Type::real, T, D);
            c.in.emplace_back("g", Type::real, 1, D);
            c.out.emplace_back("h", Type::real, T, D);
            c.out.emplace_back("rstd", Type::real, 1, T);
            Random random(++seed);
            fill.fill(c.in[0].as<float>(), T, D, random);
            // Rows about as small as epsilon, so that its place matters.
            for (int i = 0; i < T * D; ++i) c.in[0].as<float>()[i] *= i / D % 2 == 0 ? 1.0f : 1e-3f;
            random_values(c.in[1].as<float>(), 1, D, random);
            reference::rmsnorm(c.in[0].as<float>(), c.in[1].as<float>(), T, D, c.out[0].as<float>(),
                               c.out[1].as<float>());
            cases.push_back(std::move(c));
        }
    }
    return cases;
}

std::vector<Case> router_cases() {
    std::vector<Case> cases;
    std::uint32_t seed = 0;
    const int sizes[][3] = {{1, 1, 1}, {15, 8, 2}, {16, 7, 3}, {33, 16, 4}, {128, 64, 8}, {129, 8, 8}};
    for (const bool tied : {false, true}) {
        for (const auto& [T, E, S] : sizes) {
            Case c{tied ? "equal logits" : "random", {T, E, S}, {}, {}};
            c.in.emplace_back("logits", Type::real, T, E);
            c.out.emplace_back("probs", Type::real, T, E);
            c.out.emplace_back("experts", Type::integer, T, S);
            c.out.emplace_back("gates", Type::real, T, S);
            Random random(++seed);
            float* logits = c.in[0].as<float>();
            for (int i = 0; i < T * E; ++i)
                logits[i] = tied ? static_cast<float>(random.below(3)) : 4 * random.signed_unit();
            reference::router_topk(logits, nullptr, T, E, S, c.out[0].as<float>(), c.out[1].as<int>(),
                                   c.out[2].as<float>());
            cases.push_back(std::move(c));
        }
    }
    return cases;
}

}  // namespace verify
