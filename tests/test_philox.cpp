#include <cstdint>

#include "reference/philox.hpp"
#include "tests/catch.hpp"

using quads::philox4x32_10;
using quads::PhiloxWords;
using quads::uniform24;

// The three Philox4x32-10 vectors of Random123's kat_vectors: zeros, ones, and digits of pi.
TEST_CASE("philox: known answers of Random123", "[philox]") {
    struct Known {
        PhiloxWords counter;
        std::uint32_t key0, key1;
        PhiloxWords words;
    };
    const Known known[] = {
        {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         0xffffffff,
         0xffffffff,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         0xa4093822,
         0x299f31d0,
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (const Known& k : known) {
        const PhiloxWords words = philox4x32_10(k.counter, k.key0, k.key1);
        for (int i = 0; i < 4; ++i) REQUIRE(words.word[i] == k.words.word[i]);
    }
}

TEST_CASE("philox: uniform24 keeps the 24 highest bits and stays below 1", "[philox]") {
    REQUIRE(uniform24(0) == 0.0f);
    REQUIRE(uniform24(0xff) == 0.0f);
    REQUIRE(uniform24(0x100) == 0x1p-24f);
    REQUIRE(uniform24(0x80000000u) == 0.5f);
    REQUIRE(uniform24(0xffffffffu) == 1.0f - 0x1p-24f);
}
