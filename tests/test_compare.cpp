#include "tests/compare.hpp"

#include <cmath>

TEST_CASE("compare: sees a sign of zero, a last bit, a NaN and a length", "[compare]") {
    using Floats = std::vector<float>;
    REQUIRE(bit_difference(Floats{1.0f, -0.0f}, Floats{1.0f, -0.0f}) == "");
    REQUIRE(bit_difference(Floats{1.0f, -0.0f}, Floats{1.0f, 0.0f}) ==
            "1 of 2 elements differ; element 1: found -0 (0x80000000), expected 0 (0x0)");
    REQUIRE(bit_difference(Floats{1.0f}, Floats{std::nextafter(1.0f, 2.0f)}) != "");
    REQUIRE(bit_difference(Floats{NAN}, Floats{NAN}) != "");
    REQUIRE(bit_difference(Floats{1.0f}, Floats{}) != "");
    REQUIRE(bit_difference(std::vector<unsigned char>{7}, std::vector<unsigned char>{8}) ==
            "1 of 1 elements differ; element 0: found 7 (0x7), expected 8 (0x8)");
}
