// Compares arrays by their bits: -0 differs from 0, and a NaN is an error even where both sides hold it, so that no
// comparison passes on results that were never computed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/catch.hpp"

namespace compare {

template <typename Element>
std::uint64_t bits(Element value) {
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    return word;
}

template <typename Element>
bool same(Element found, Element expected) {
    if constexpr (std::is_floating_point_v<Element>) {
        if (std::isnan(found)) return false;
    }
    return bits(found) == bits(expected);
}

// Number of representable floats from a to b: 0 only between equal values and between the two zeros.
inline std::uint64_t ulps(float a, float b) {
    const auto rank = [](float x) {
        const std::int64_t magnitude = static_cast<std::int64_t>(bits(x) & 0x7FFFFFFFu);
        return std::signbit(x) ? -magnitude : magnitude;
    };
    return static_cast<std::uint64_t>(std::llabs(rank(a) - rank(b)));
}

template <typename Element>
std::string describe(Element found, Element expected) {
    std::ostringstream text;
    text << "found " << +found << " (0x" << std::hex << bits(found) << "), expected " << +expected << " (0x"
         << bits(expected) << ")" << std::dec;
    if constexpr (std::is_same_v<Element, float>) {
        if (!std::isnan(found) && !std::isnan(expected)) text << ", " << ulps(found, expected) << " ulp apart";
    }
    return text.str();
}

}  // namespace compare

// "" if both hold the same bits and no NaN, else a sentence: how many elements differ, and the first three of them.
// With `columns`, places are given as row and column; with `input`, an array of the same shape, the 16-block of input
// around the first place is shown too.
template <typename Element>
std::string bit_difference(const std::vector<Element>& found, const std::vector<Element>& expected,
                           std::size_t columns = 0, const std::vector<float>& input = {}) {
    std::ostringstream text;
    if (found.size() != expected.size()) {
        text << "found " << found.size() << " elements, expected " << expected.size();
        return text.str();
    }
    std::vector<std::size_t> wrong;
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (!compare::same(found[i], expected[i])) wrong.push_back(i);
    }
    if (wrong.empty()) return "";
    text << wrong.size() << " of " << found.size() << " elements differ";
    for (std::size_t w = 0; w < std::min<std::size_t>(wrong.size(), 3); ++w) {
        const std::size_t i = wrong[w];
        if (columns == 0) {
            text << "; element " << i << ": ";
        } else {
            text << "; row " << i / columns << ", column " << i % columns << ": ";
        }
        text << compare::describe(found[i], expected[i]);
    }
    if (columns != 0 && input.size() == found.size()) {
        const std::size_t row = wrong[0] / columns, first = wrong[0] % columns / 16 * 16;
        text << "; input of that block:";
        for (std::size_t k = first; k < std::min(first + 16, columns); ++k) text << ' ' << input[row * columns + k];
    }
    return text.str();
}

#define REQUIRE_SAME_BITS(found, expected) REQUIRE(bit_difference(found, expected) == "")
#define REQUIRE_SAME_MATRIX(found, expected, columns) REQUIRE(bit_difference(found, expected, columns) == "")
