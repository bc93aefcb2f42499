#include "notebooks/labs/adapter.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

namespace {

using Codes = std::vector<std::uint8_t>;

struct Row {
    Codes codes, scales;
    Floats outer;
};

Row quantized(const Floats& x) {
    const int K = static_cast<int>(x.size());
    Row row{Codes(quads::code_bytes_of(K), 0xAA), Codes(quads::blocks_of(K), 0xAA), Floats(1, -1.0f)};
    lab::quantize_row(x.data(), K, row.codes.data(), row.scales.data(), row.outer.data());
    return row;
}

void require_reference(const Floats& x) {
    const int K = static_cast<int>(x.size());
    const Row found = quantized(x);
    Row expected = found;
    quads::reference::quantize_nvfp4(x.data(), lab::Dense(1), 1, K,
                                     lab::rows(expected.codes.data(), expected.scales.data(), expected.outer.data()));
    INFO("K = " << K);
    REQUIRE_SAME_BITS(found.outer, expected.outer);
    REQUIRE_SAME_BITS(found.scales, expected.scales);
    REQUIRE_SAME_BITS(found.codes, expected.codes);
}

}  // namespace

TEST_CASE("1. a row of zeros has outer scale 1, scales 0 and codes 0", "[lab02]") {
    const Row row = quantized(Floats(17, 0.0f));
    REQUIRE_SAME_BITS(row.outer, Floats{1.0f});
    REQUIRE_SAME_BITS(row.scales, Codes(2, 0));
    REQUIRE_SAME_BITS(row.codes, Codes(16, 0));
}

TEST_CASE("2. the largest value of a row is 448 * 6 * g", "[lab02]") {
    // With an amax of 2688, Se and g are 1: scales and codes can be read off.
    Floats x(32, 0.0f);
    x[0] = 2688.0f;
    x[1] = -448.0f;
    x[16] = 6.0f;
    x[17] = 1.5f;
    const Row row = quantized(x);
    REQUIRE_SAME_BITS(row.outer, Floats{1.0f});
    REQUIRE_SAME_BITS(row.scales, (Codes{0x7E, 0x38}));
    REQUIRE(int(row.codes[0]) == 0xA7);
    REQUIRE(int(row.codes[8]) == 0x37);
}

TEST_CASE("3. codes are made with the scale after its rounding", "[lab02]") {
    // a = 6.3: a / 6 = 1.05 rounds to 1, and 2.52 / 1 is a 3 where 2.52 / 1.05 = 2.4 would be a 2.
    Floats x(32, 0.0f);
    x[0] = 2688.0f;
    x[16] = 6.3f;
    x[17] = 2.52f;
    REQUIRE(int(quantized(x).codes[8]) == 0x57);
}

TEST_CASE("4. small blocks: subnormal scales, and codes 0 where the scale is 0", "[lab02]") {
    Floats x(48, 0.0f);
    x[0] = 2688.0f;
    x[16] = 6 * 0x1p-9f;    // the smallest scale
    x[32] = -6 * 0x1p-11f;  // rounds to scale 0
    const Row row = quantized(x);
    REQUIRE_SAME_BITS(row.scales, (Codes{0x7E, 0x01, 0x00}));
    REQUIRE(int(row.codes[8]) == 7);
    REQUIRE(int(row.codes[16]) == 0);
}

TEST_CASE("5. the order of the operations decides rare roundings", "[lab02]") {
    // Row and block amax for which a / 6 * Se, a * Se / 6 and Se * (a * fl(1/6)) all round to the scale below, 0x7A.
    Floats x(32, 0.0f);
    x[0] = 1.5f;
    x[16] = 1.125f;
    REQUIRE(int(quantized(x).scales[1]) == 0x7B);
}

TEST_CASE("6. any number of columns, any magnitude, as the reference", "[lab02]") {
    for (const int K : {1, 15, 16, 17, 31, 32, 33, 127, 128, 129}) {
        for (const float scale : {1.0f, 1e-30f, 3e38f, 1e-42f}) require_reference(random_floats(K, K, scale));
        Floats spread = random_floats(K, K + 1);
        for (int k = 0; k < K; ++k) spread[k] *= std::ldexp(1.0f, -3 * (k / 16));
        require_reference(spread);
    }
}
