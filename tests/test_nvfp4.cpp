#include "reference/nvfp4.hpp"

#include <cmath>

#include "reference/codec.hpp"
#include "reference/parallel.hpp"
#include "tests/arrays.hpp"
#include "tests/compare.hpp"
#include "tests/packed.hpp"
#include "tests/refusal.hpp"

using namespace quads;

namespace {

void require_same(const Packed& found, const Packed& expected) {
    REQUIRE_SAME_BITS(found.outer, expected.outer);
    REQUIRE_SAME_BITS(found.scales, expected.scales);
    REQUIRE_SAME_BITS(found.codes, expected.codes);
}

// A row of 32 columns: `outer_amax` in block 1 decides the outer scale, block 0 holds its own amax and `x`.
Packed two_blocks(float outer_amax, float block_amax, float x) {
    Floats row(32, 0.0f);
    row[0] = block_amax;
    row[1] = x;
    row[16] = outer_amax;
    return quantized(row, GroupRows({1}), 32, OuterScale::row);
}

Floats dequantized(Packed& packed, const GroupRows& groups, int K, bool with_outer) {
    Floats x(static_cast<std::size_t>(groups.rows()) * K, NAN);
    reference::dequantize_nvfp4(packed.view(), groups.view(), groups.rows(), K, with_outer, x.data());
    return x;
}

}  // namespace

TEST_CASE("quantize_nvfp4: the contract's recipe, every byte written", "[quantize_nvfp4]") {
    for (const int K : {1, 15, 16, 17, 31, 32, 33, 100}) {
        for (const Ints& rows : {Ints{}, Ints{1}, Ints{0, 3, 0, 17, 1}, Ints{33}}) {
            for (const OuterScale kind : {OuterScale::row, OuterScale::group}) {
                const GroupRows groups(rows);
                CAPTURE(K, groups.rows());
                const Floats x = spread_floats(static_cast<std::size_t>(groups.rows()) * K, 7 + K, 3.0f);
                require_same(quantized(x, groups, K, kind), literal::quantized(x, groups, K, kind));
            }
        }
    }
}

TEST_CASE("quantize_nvfp4: the recipe at extreme magnitudes", "[quantize_nvfp4]") {
    const GroupRows groups({4});
    for (const float scale : {FLT_MAX, 1e38f, 1e-30f, 1e-37f, 1e-40f, 1e-44f, 1e-45f}) {  // down to 2^-149
        CAPTURE(scale);
        Floats x = random_floats(4 * 40, 3);
        for (float& value : x) value *= scale;
        x[0] = scale;
        require_same(quantized(x, groups, 40, OuterScale::row), literal::quantized(x, groups, 40, OuterScale::row));
    }
}

TEST_CASE("quantize_nvfp4: vectors on which other orders of operations differ", "[quantize_nvfp4]") {
    SECTION("448 * a / ga is a tie of E4M3") {
        REQUIRE(two_blocks(1.015625f, 0.76171875f, 0.0f).scales[0] == 0x7B);
    }
    SECTION("x / (s * g) is -1.75 exactly, a tie of E2M1") {
        const Packed packed = two_blocks(1.03125f, 0.63671875f, -0.193359375f);
        REQUIRE(e4m3_decode(packed.scales[0]) == 288.0f);
        REQUIRE(packed.codes[0] >> 4 == 0xB);
    }
    SECTION("x / (s * g) is 3.5 exactly, a tie of E2M1") {
        const Packed packed = two_blocks(1.015625f, 0.63671875f, 0.380859375f);
        REQUIRE(e4m3_decode(packed.scales[0]) == 288.0f);
        REQUIRE(packed.codes[0] >> 4 == 6);
    }
    SECTION("a block scale that rounds to 0 gives codes 0, not +-6") {
        const Packed packed = two_blocks(1.0f, 1e-6f, -1e-6f);
        REQUIRE(packed.scales[0] == 0);
        for (int i = 0; i < 8; ++i) REQUIRE(packed.codes[i] == 0);
        REQUIRE(packed.scales[1] == 0x7E);
    }
}

TEST_CASE("quantize_nvfp4: half a code apart, values a percent apart get different codes", "[quantize_nvfp4]") {
    // At a scale of 24 the codes 2 and 3 stand for 48 and 72; 60 lies between, so 59.76 falls and 60.24 rises.
    const Floats x{144.0f, 60.24f, 59.76f};
    Packed packed = quantized(x, GroupRows({1}), 3, OuterScale::row);
    REQUIRE(packed.scales[0] == 0x7E);
    REQUIRE(e2m1_decode(packed.codes[0] & 15) == 6.0f);
    REQUIRE(e2m1_decode(packed.codes[0] >> 4) == 3.0f);
    REQUIRE(e2m1_decode(packed.codes[1] & 15) == 2.0f);
}

TEST_CASE("quantize_nvfp4: zero rows, zero blocks and signed zeros", "[quantize_nvfp4]") {
    Floats x(3 * 32, 0.0f);
    x[32] = 1.0f;       // row 1: block 1 is all zeros
    x[33] = -0.0f;
    x[34] = -1e-3f;     // rounds to zero, with its sign
    x[64] = -0.0f;      // row 2: only zeros
    const Packed packed = quantized(x, GroupRows({3}), 32, OuterScale::row);
    REQUIRE_SAME_BITS(packed.outer, (Floats{1.0f, 1.0f / 2688.0f, 1.0f}));
    REQUIRE_SAME_BITS(packed.scales, (Bytes{0, 0, 0x7E, 0, 0, 0}));
    Bytes codes(3 * 16, 0);
    codes[16] = 0x87;
    codes[17] = 0x08;
    REQUIRE_SAME_BITS(packed.codes, codes);
}

TEST_CASE("quantize_nvfp4: subnormal block scales", "[quantize_nvfp4]") {
    for (int code = 1; code < 8; ++code) {
        // Se = 2688 and a block whose scale is code * 2^-9 before rounding.
        const float block_amax = static_cast<float>(code) * 0x1p-9f * 6.0f / 2688.0f;
        Packed packed = two_blocks(1.0f, block_amax, -0.5f * block_amax);
        REQUIRE(packed.scales[0] == code);
        REQUIRE(packed.codes[0] == 0xD7);  // 6 and -3
    }
}

TEST_CASE("quantize_nvfp4: refuses NaN, Inf and K < 1 and writes nothing", "[quantize_nvfp4]") {
    const GroupRows groups({3});
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
        Floats x = random_floats(3 * 20, 1);
        x[1 * 20 + 17] = bad;
        x[2 * 20 + 3] = bad;
        Packed packed(3, 20, 1, OuterScale::row);
        const std::string sentence = refusal([&] {
            reference::quantize_nvfp4(x.data(), groups.view(), 3, 20, packed.view());
        });
        REQUIRE(sentence.find("row 1, column 17") != std::string::npos);
        for (const std::uint8_t byte : packed.codes) REQUIRE(byte == 0xA5);
        for (const std::uint8_t byte : packed.scales) REQUIRE(byte == 0xA5);
        for (const float outer : packed.outer) REQUIRE(std::isnan(outer));
    }
    Packed packed(3, 1, 1, OuterScale::row);
    const Floats x(3, 1.0f);
    REQUIRE(refusal([&] { reference::quantize_nvfp4(x.data(), groups.view(), 3, 0, packed.view()); }) != "");
}

TEST_CASE("dequantize_nvfp4: (q * s) * g of every element", "[dequantize_nvfp4]") {
    for (const int K : {1, 15, 16, 17, 33, 64}) {
        for (const OuterScale kind : {OuterScale::row, OuterScale::group}) {
            const GroupRows groups({2, 0, 19});
            const Floats x = spread_floats(static_cast<std::size_t>(groups.rows()) * K, K, 0.1f);
            Packed packed = quantized(x, groups, K, kind);
            Floats expected;
            for (int m = 0; m < groups.rows(); ++m) {
                for (int k = 0; k < K; ++k) expected.push_back(literal::value(packed, groups, m, k, K));
            }
            REQUIRE_SAME_MATRIX(dequantized(packed, groups, K, true), expected, K);
            packed.outer.assign(packed.outer.size(), 1.0f);
            const Floats exact = dequantized(packed, groups, K, true);
            REQUIRE_SAME_BITS(dequantized(packed, groups, K, false), exact);
            for (const float value : exact) REQUIRE(bf16_round(value) == value);
        }
    }
}

TEST_CASE("dequantize_nvfp4: all 256 bytes of codes under all 127 scales", "[dequantize_nvfp4]") {
    const GroupRows groups({1});
    for (int scale = 0; scale < 0x7F; ++scale) {
        Packed packed(1, 512, 1, OuterScale::row);
        for (int i = 0; i < 256; ++i) packed.codes[i] = static_cast<std::uint8_t>(i);
        packed.scales.assign(32, static_cast<std::uint8_t>(scale));
        packed.outer = {0.3f};
        Floats expected;
        for (int k = 0; k < 512; ++k) expected.push_back(literal::value(packed, groups, 0, k, 512));
        REQUIRE_SAME_BITS(dequantized(packed, groups, 512, true), expected);
    }
}

TEST_CASE("quantize_nvfp4: quantising its own values again changes no code of a full-range block", "[quantize_nvfp4]") {
    const GroupRows groups({40});
    const Floats x = random_floats(40 * 64, 11);
    Packed once = quantized(x, groups, 64, OuterScale::row);
    Packed twice = quantized(dequantized(once, groups, 64, true), groups, 64, OuterScale::row);
    REQUIRE_SAME_BITS(twice.scales, once.scales);
    REQUIRE_SAME_BITS(twice.codes, once.codes);
}

TEST_CASE("count_code_flips: counts columns, not bytes", "[count_code_flips]") {
    Floats a = random_floats(3 * 33, 5), b = a;
    b[33 + 4] = -a[33 + 4];
    b[33 + 5] = -a[33 + 5];
    b[66 + 32] = -a[66 + 32];
    Ints flips(3, -1), expected{0, 0, 0};
    reference::count_code_flips(a.data(), b.data(), 3, 33, flips.data());
    const GroupRows groups({3});
    const Packed qa = quantized(a, groups, 33, OuterScale::row), qb = quantized(b, groups, 33, OuterScale::row);
    for (int m = 0; m < 3; ++m) {
        for (int k = 0; k < 33; ++k) {
            expected[m] += code_at(&qa.codes[m * code_bytes_of(33)], k) != code_at(&qb.codes[m * code_bytes_of(33)], k);
        }
    }
    REQUIRE(flips == expected);
    REQUIRE(flips[0] == 0);
    REQUIRE(flips[1] == 2);
    REQUIRE(flips[2] == 1);
}

TEST_CASE("quantize_nvfp4: the same bits with one and two threads", "[quantize_nvfp4]") {
    const GroupRows groups({100, 0, 157});
    const Floats x = spread_floats(257 * 48, 9);
    for (const OuterScale kind : {OuterScale::row, OuterScale::group}) {
        std::vector<Packed> runs;
        with_one_and_two_threads([&](int) { runs.push_back(quantized(x, groups, 48, kind)); });
        require_same(runs[1], runs[0]);
    }
}
