// Compares arrays by their bits: -0 differs from 0, and a NaN is an error even where both sides hold it, so that no
// comparison passes on results that were never computed.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/catch.hpp"

// "" if both hold the same bits and no NaN, else a sentence: how many elements differ, and the first of them.
template <typename Element>
std::string bit_difference(const std::vector<Element>& found, const std::vector<Element>& expected) {
    std::ostringstream text;
    if (found.size() != expected.size()) {
        text << "found " << found.size() << " elements, expected " << expected.size();
        return text.str();
    }
    const auto bits = [](Element value) {
        std::uint64_t word = 0;
        std::memcpy(&word, &value, sizeof value);
        return word;
    };
    std::size_t wrong = 0, first = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        bool same = bits(found[i]) == bits(expected[i]);
        if constexpr (std::is_floating_point_v<Element>) same = same && !std::isnan(found[i]);
        if (!same && wrong++ == 0) first = i;
    }
    if (wrong == 0) return "";
    text << wrong << " of " << found.size() << " elements differ; element " << first << ": found " << +found[first]
         << " (0x" << std::hex << bits(found[first]) << "), expected " << +expected[first] << " (0x"
         << bits(expected[first]) << ")";
    return text.str();
}

#define REQUIRE_SAME_BITS(found, expected) REQUIRE(bit_difference(found, expected) == "")
