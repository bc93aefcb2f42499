// Philox4x32-10, a counter-based random number generator: the words are a pure function of counter and key, so any
// thread of any machine can draw any number of any sequence. Salmon, Moraes, Dror & Shaw 2011.
#pragma once

#include <cstdint>

#include "reference/dims.hpp"

namespace quads {

struct PhiloxWords {
    std::uint32_t word[4];
};

// Ten rounds of two 32 x 32 -> 64 bit products; the key moves by the Weyl constants of the paper between rounds.
QUADS_HOST_DEVICE inline PhiloxWords philox4x32_10(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1) {
    PhiloxWords c = counter;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c.word[0];
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c.word[2];
        c = {{static_cast<std::uint32_t>(product1 >> 32) ^ c.word[1] ^ key0, static_cast<std::uint32_t>(product1),
              static_cast<std::uint32_t>(product0 >> 32) ^ c.word[3] ^ key1, static_cast<std::uint32_t>(product0)}};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

// The word's 24 highest bits times 2^-24: uniform in [0, 1), exact in FP32 and never 1.
QUADS_HOST_DEVICE inline float uniform24(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace quads
