#include "tests/compare.hpp"

#include <cmath>
#include <limits>

using Floats = std::vector<float>;

TEST_CASE("compare: sees a sign of zero, a last bit, a NaN and a length", "[compare]") {
    REQUIRE(bit_difference(Floats{1.0f, -0.0f}, Floats{1.0f, -0.0f}) == "");
    REQUIRE(bit_difference(Floats{1.0f, -0.0f}, Floats{1.0f, 0.0f}) ==
            "1 of 2 elements differ; element 1: found -0 (0x80000000), expected 0 (0x0), 0 ulp apart");
    REQUIRE(bit_difference(Floats{1.0f}, Floats{std::nextafter(1.0f, 2.0f)}) ==
            "1 of 1 elements differ; element 0: found 1 (0x3f800000), expected 1 (0x3f800001), 1 ulp apart");
    REQUIRE(bit_difference(Floats{NAN}, Floats{NAN}) != "");
    REQUIRE(bit_difference(Floats{NAN}, Floats{1.0f}) != "");
    REQUIRE(bit_difference(Floats{1.0f}, Floats{NAN}) != "");
    REQUIRE(bit_difference(Floats{INFINITY}, Floats{std::numeric_limits<float>::max()}) != "");
    REQUIRE(bit_difference(Floats{1.0f}, Floats{}) != "");
    REQUIRE(bit_difference(std::vector<unsigned char>{7}, std::vector<unsigned char>{8}) ==
            "1 of 1 elements differ; element 0: found 7 (0x7), expected 8 (0x8)");
}

TEST_CASE("compare: sees each single flipped bit", "[compare]") {
    const float value = 1.5f;
    for (int bit = 0; bit < 32; ++bit) {
        const auto flipped = static_cast<std::uint32_t>(compare::bits(value) ^ (1u << bit));
        float other;
        std::memcpy(&other, &flipped, sizeof other);
        REQUIRE(bit_difference(Floats{0.0f, value}, Floats{0.0f, other}) != "");
    }
}

TEST_CASE("compare: names row, column and the block of the input", "[compare]") {
    const Floats expected(2 * 20, 1.0f);
    Floats found = expected, input(2 * 20);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i);
    found[20 + 17] = 2.0f;
    REQUIRE(bit_difference(found, expected, 20, input) ==
            "1 of 40 elements differ; row 1, column 17: found 2 (0x40000000), expected 1 (0x3f800000), "
            "8388608 ulp apart; input of that block: 36 37 38 39");
}

TEST_CASE("compare: counts floats between two values", "[compare]") {
    REQUIRE(compare::ulps(1.0f, std::nextafter(1.0f, 0.0f)) == 1);
    REQUIRE(compare::ulps(0.0f, -0.0f) == 0);
    REQUIRE(compare::ulps(std::numeric_limits<float>::denorm_min(), -std::numeric_limits<float>::denorm_min()) == 2);
}
