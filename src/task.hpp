// The task: chains of digits under + - * modulo 10, evaluated from left to right.
//
//   prompt    3+5*2-7=      response  8 6 9      every running value; the reward looks only at the last one
//
// Tokens: 0-9 digits, 10 '+', 11 '-', 12 '*', 13 '=', 14 end of response, 15 unused.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "src/config.hpp"

namespace quads {

constexpr int kEndToken = 14;

struct Chain {
    std::vector<int> prompt;    // 2 * digits tokens
    std::vector<int> response;  // digits - 1 tokens, the right one

    std::string text() const;  // "3+5*2-7=869"
};

class ChainTask {
public:
    // Reads the held-out chains from a file of one chain a line. Error for a missing file, a malformed line, a wrong
    // running value or another number of digits.
    ChainTask(const TaskConfig& config, const std::string& heldout_path);

    // A training chain, never one of the held-out ones; deterministic in its arguments: Philox key (seed, 1), counter
    // (step, index, word group, attempt).
    Chain training_chain(std::uint32_t seed, std::uint32_t step, std::uint32_t index) const;

    // The first `count` of them for one step.
    std::vector<Chain> training_chains(std::uint32_t seed, std::uint32_t step, int count) const;

    const std::vector<Chain>& heldout() const { return heldout_; }

private:
    int digits_;
    std::vector<Chain> heldout_;
    std::set<std::vector<int>> heldout_prompts_;
};

// The chain of a Philox stream: the generator of training and held-out chains alike.
Chain random_chain(int digits, std::uint32_t key0, std::uint32_t key1, std::uint32_t step, std::uint32_t index,
                   std::uint32_t attempt);

// The i-th chain of data/heldout.txt: key "held", "out".
Chain heldout_chain(int digits, std::uint32_t i);

// Number of response tokens that count: up to and including the first end token, or all n. By position, so that
// anything after the first end token is left out whatever it is.
int response_length(const int* response, int n);

// 1 if the response is complete and its last value is right, else 0.
float reward(const Chain& chain, const int* response, int n);

}  // namespace quads
