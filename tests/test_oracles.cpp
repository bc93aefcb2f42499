#include "reference/oracles.hpp"

#include <algorithm>
#include <cmath>

#include "reference/codec.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_w4a4.hpp"
#include "tests/arrays.hpp"
#include "tests/compare.hpp"
#include "tests/packed.hpp"
#include "tests/refusal.hpp"

using namespace quads;

namespace {

using Sums = std::vector<std::int64_t>;

// The tensor core's sum of products x[k] * w[k].
float tensor_core_dot(const Floats& x, const Floats& w) {
    const GroupRows one({1});
    float y = NAN;
    reference::gemm_bf16_tensor_core(x.data(), w.data(), nullptr, one.view(), 1, 1, static_cast<int>(x.size()), &y);
    return y;
}

// 1 and `count` products of `small`, within one instruction.
float one_and(int count, float small) {
    Floats x(16, 0.0f), w(16, 1.0f);
    x[0] = 1.0f;
    for (int i = 1; i <= count; ++i) x[i] = small;
    return tensor_core_dot(x, w);
}

// Outer scales of 1, so that y is the bare accumulator.
Packed unscaled(Packed packed) {
    packed.outer.assign(packed.outer.size(), 1.0f);
    return packed;
}

struct W4a4 {
    W4a4(int K, std::uint32_t seed)
        : groups({6, 0, 5}), outputs({4, 4, 4}), K(K), data(spread_floats(11 * K, seed)),
          x(unscaled(quantized(data, groups, K, OuterScale::row))), residual(11, K, 3, OuterScale::row),
          w(unscaled(quantized(spread_floats(12 * K, seed + 5), outputs, K, OuterScale::group))) {
        Packed main = quantized(data, groups, K, OuterScale::row);
        reference::quantize_nvfp4_residual(data.data(), main.view(), groups.view(), 11, K, 1.0f,
                                           ResidualSelection::token, residual.view());
    }
    void exact(bool with_residual, Sums& sum, Sums& magnitude) {
        sum.assign(11 * 4, -1);
        magnitude.assign(11 * 4, -1);
        const Nvfp4 second = residual.view();
        reference::gemm_w4a4_exact(x.view(), with_residual ? &second : nullptr, w.view(), groups.view(), 11, 4, K,
                                   sum.data(), magnitude.data());
    }
    GroupRows groups, outputs;
    int K;
    Floats data;
    Packed x, residual, w;
};

// sum * 2^-20 truncated toward 0 to FP32.
float truncated(std::int64_t sum) {
    const double value = static_cast<double>(sum) * 0x1p-20;
    const float nearest = static_cast<float>(value);
    return std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? std::nextafter(nearest, 0.0f) : nearest;
}

}  // namespace

TEST_CASE("oracles: the exact sum of one block, by hand", "[oracles]") {
    const GroupRows one({1});
    Packed x(1, 16, 1, OuterScale::row), w(1, 16, 1, OuterScale::group);
    x.codes = {0x17, 0, 0, 0, 0, 0, 0, 0xF0};  // 6, 0.5, ..., -6
    w.codes = {0x73, 0, 0, 0, 0, 0, 0, 0x10};  // 1.5, 6, ..., 0.5
    x.scales = {0x01};                         // 2^-9
    w.scales = {0x7E};                         // 448
    std::int64_t sum, magnitude;
    reference::gemm_w4a4_exact(x.view(), nullptr, w.view(), one.view(), 1, 1, 16, &sum, &magnitude);
    REQUIRE(sum == 9 * 448 * (1 << 11));  // (9 + 3 - 3) * 448 * 2^-9, in units of 2^-20
    REQUIRE(magnitude == sum);
}

TEST_CASE("oracles: one block is exact in FP32", "[oracles][gemm_w4a4]") {
    for (const int K : {1, 7, 15, 16}) {
        for (std::uint32_t seed = 0; seed < 20; ++seed) {
            W4a4 p(K, seed);
            Sums sum, magnitude;
            p.exact(false, sum, magnitude);
            Floats y(44, NAN), expected;
            reference::gemm_w4a4(p.x.view(), p.w.view(), p.groups.view(), 11, 4, K, y.data());
            for (const std::int64_t units : sum) expected.push_back(static_cast<float>(units * 0x1p-20));
            REQUIRE_SAME_MATRIX(y, expected, 4);
        }
    }
}

TEST_CASE("oracles: FP32 sums stay within half a unit per addition", "[oracles][gemm_w4a4][gemm_w4a4_residual]") {
    int inexact = 0;
    for (const int K : {33, 160, 1024}) {
        for (const bool with_residual : {false, true}) {
            W4a4 p(K, K);
            Sums sum, magnitude;
            p.exact(with_residual, sum, magnitude);
            Floats y(44, NAN);
            if (with_residual) {
                reference::gemm_w4a4_residual(p.x.view(), p.residual.view(), p.w.view(), p.groups.view(), 11, 4, K,
                                              y.data());
            } else {
                reference::gemm_w4a4(p.x.view(), p.w.view(), p.groups.view(), 11, 4, K, y.data());
            }
            const double additions = blocks_of(K) * (with_residual ? 2 : 1);
            for (int i = 0; i < 44; ++i) {
                const double error = std::fabs(y[i] - sum[i] * 0x1p-20);
                const double bound = 1.001 * additions * 0x1p-24 * magnitude[i] * 0x1p-20;
                REQUIRE(error <= bound);
                inexact += error > 0.0;
            }
        }
    }
    REQUIRE(inexact > 0);  // the bound was put to use
}

TEST_CASE("oracles: sums that FP32 holds do not depend on the split", "[oracles][gemm_w4a4_split]") {
    constexpr int K = 16 * 41 - 3;
    for (const bool with_residual : {false, true}) {
        W4a4 p(K, 9);
        for (Packed* packed : {&p.x, &p.residual, &p.w}) std::fill(packed->scales.begin(), packed->scales.end(), 0x38);
        Sums sum, magnitude;
        p.exact(with_residual, sum, magnitude);
        Floats expected;
        for (const std::int64_t units : sum) expected.push_back(static_cast<float>(units * 0x1p-20));
        for (const int splits : {1, 2, 3, 6, 50}) {
            Floats y(44, NAN);
            if (with_residual) {
                reference::gemm_w4a4_residual_split(p.x.view(), p.residual.view(), p.w.view(), p.groups.view(), 11, 4,
                                                    K, splits, y.data());
            } else {
                reference::gemm_w4a4_split(p.x.view(), p.w.view(), p.groups.view(), 11, 4, K, splits, y.data());
            }
            REQUIRE_SAME_MATRIX(y, expected, 4);
        }
    }
}

TEST_CASE("oracles: the exact GEMM refuses what could overflow", "[oracles]") {
    Packed x(1, 16, 1, OuterScale::row);
    const GroupRows none({0});
    std::int64_t out = 0;
    for (const int K : {0, 16 * 32768 + 1}) {
        REQUIRE(refusal([&] {
            reference::gemm_w4a4_exact(x.view(), nullptr, x.view(), none.view(), 0, 0, K, &out, &out);
        }) != "");
    }
}

TEST_CASE("oracles: a Hopper tensor core keeps 25 fraction bits and truncates", "[oracles][gemm_bf16_tensor_core]") {
    REQUIRE(one_and(4, 0x1p-25f) == 1.0f + 0x1p-23f);   // 24 bits would lose all four
    REQUIRE(one_and(8, 0x1p-26f) == 1.0f);              // 26 bits would keep all eight
    REQUIRE(one_and(3, 0x1p-25f) == 1.0f);              // rounding to nearest would give 1 + 2^-23
    REQUIRE(one_and(1, -0x1p-25f) == 1.0f - 0x1p-24f);  // and here 1
    REQUIRE(one_and(1, -0x1p-26f) == 1.0f);             // each term is truncated toward 0 first
}

TEST_CASE("oracles: products are aligned by the exponents of their factors", "[oracles][gemm_bf16_tensor_core]") {
    // 1.5 * 1.5 = 2.25 has the unnormalised exponent 0, so terms of 2^-25 beside it survive: eight are a unit of 2.25.
    Floats x(16, 0.0f), w(16, 0.0f);
    x[0] = w[0] = 1.5f;
    for (int i = 1; i <= 8; ++i) x[i] = 0x1p-25f, w[i] = 1.0f;
    REQUIRE(tensor_core_dot(x, w) == 2.25f + 0x1p-22f);
    // A large factor of a zero product does not count.
    x.assign(16, 0.0f);
    w.assign(16, 1.0f);
    x[0] = 0x1p-30f;
    w[1] = 0x1p100f;
    REQUIRE(tensor_core_dot(x, w) == 0x1p-30f);
}

TEST_CASE("oracles: the accumulator joins the next 16 products", "[oracles][gemm_bf16_tensor_core]") {
    Floats x(33, 0.0f), w(33, 1.0f);
    x[0] = 1.0f;
    for (int i = 16; i < 20; ++i) x[i] = 0x1p-25f;  // summed with C = 1
    x[32] = 0x1p-25f;                               // alone with C: lost
    REQUIRE(tensor_core_dot(x, w) == 1.0f + 0x1p-23f);
}

TEST_CASE("oracles: subnormals, infinities and NaN of a tensor core", "[oracles][gemm_bf16_tensor_core]") {
    REQUIRE(tensor_core_dot({0x1p-133f}, {1.0f}) == 0x1p-133f);
    REQUIRE(tensor_core_dot({0x1p-80f}, {0x1p-69f}) == 0x1p-149f);
    REQUIRE(tensor_core_dot({0x1p-80f}, {0x1p-70f}) == 0.0f);
    REQUIRE(tensor_core_dot({INFINITY}, {2.0f}) == INFINITY);
    REQUIRE(tensor_core_dot({0x1p100f}, {-0x1p100f}) == -INFINITY);
    REQUIRE(float_bits(tensor_core_dot({INFINITY, 1.0f}, {1.0f, -INFINITY})) == 0x7FFFFFFFu);
    REQUIRE(float_bits(tensor_core_dot({NAN}, {1.0f})) == 0x7FFFFFFFu);
    REQUIRE(float_bits(tensor_core_dot({-1.0f, 1.0f}, {1.0f, 1.0f})) == 0);
}

TEST_CASE("oracles: integers below 2^24 give the bits of the plain BF16 GEMM", "[oracles][gemm_bf16_tensor_core]") {
    const GroupRows groups({3, 0, 4});
    Floats x = random_floats(7 * 50, 1, 100.0f), w = random_floats(3 * 5 * 50, 2, 100.0f);
    for (float& value : x) value = std::floor(value);
    for (float& value : w) value = std::floor(value);
    const Floats outer{0.3f, 1.0f, 7.0f};
    Floats found(35, NAN), expected(35, NAN);
    reference::gemm_bf16_tensor_core(x.data(), w.data(), outer.data(), groups.view(), 7, 5, 50, found.data());
    reference::gemm_bf16(x.data(), w.data(), outer.data(), groups.view(), 7, 5, 50, expected.data());
    REQUIRE_SAME_MATRIX(found, expected, 5);
}

TEST_CASE("oracles: a Blackwell tensor core truncates the exact sum of four blocks", "[oracles][gemm_w4a4]") {
    for (const int K : {16, 33, 64}) {
        for (std::uint32_t seed = 0; seed < 10; ++seed) {
            W4a4 p(K, 50 + seed);
            Sums sum, magnitude;
            p.exact(false, sum, magnitude);
            Floats y(44, NAN), expected;
            reference::gemm_w4a4_tensor_core(p.x.view(), p.w.view(), p.groups.view(), 11, 4, K, y.data());
            for (const std::int64_t units : sum) expected.push_back(truncated(units));
            REQUIRE_SAME_MATRIX(y, expected, 4);
        }
    }
}

TEST_CASE("oracles: a Blackwell tensor core carries C, scales at the end and drops what lies 35 bits below",
          "[oracles][gemm_w4a4]") {
    const GroupRows one({1});
    Packed x(1, 128, 1, OuterScale::row), w(1, 128, 1, OuterScale::group);
    x.codes.assign(64, 0);
    w.codes.assign(64, 0);
    x.scales.assign(8, 0x38);  // 1
    w.scales.assign(8, 0x38);
    x.outer = {3.0f};
    w.outer = {0.1f};
    const auto run = [&] {
        float y = NAN;
        reference::gemm_w4a4_tensor_core(x.view(), w.view(), one.view(), 1, 1, 128, &y);
        return y;
    };
    x.codes[0] = w.codes[0] = 0x02;    // 1 * 1 in the first instruction
    x.codes[32] = w.codes[32] = 0x04;  // 2 * 2 in the second
    REQUIRE(run() == 5.0f * (3.0f * 0.1f));
    // A block of 0.25 at scales 2^-9 is 2^-20; beside a block whose scales have exponent 16 its lowest bit is 2^-19.
    x.codes[0] = w.codes[0] = 0x01;
    x.scales[0] = w.scales[0] = 0x01;
    x.codes[32] = w.codes[32] = 0;
    x.outer = w.outer = {1.0f};
    REQUIRE(run() == 0x1p-20f);
    x.scales[1] = w.scales[1] = 0x78;  // 256, over codes of 0
    REQUIRE(run() == 0.0f);
    x.scales[1] = w.scales[1] = 0x00;  // a zero scale does not count
    REQUIRE(run() == 0x1p-20f);
    x.scales[7] = 0x7F;
    REQUIRE(float_bits(run()) == 0x7FFFFFFFu);
}
