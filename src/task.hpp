// The tasks. A problem is made from a random program: n digits joined by + - *, evaluated from left to right modulo 10.
//
//   chain    prompt    3+5*2-7=     the program
//            response  869          every running value; the reward looks only at the last one: one right answer
//   sketch   prompt    3+?*2-?=9    the program with a hole for every second digit, and the value it must have
//            response  5867        for every digit but the first: what fills its hole, then the running value, but the
//                                   last. The reward runs the filled program and ignores the values: many right answers
//
// Tokens: 0-9 digits, 10 '+', 11 '-', 12 '*', 13 '=', 14 end of response, 15 '?'.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "src/config.hpp"

namespace quads {

constexpr int kEndToken = 14;

// Lengths, for n = task.digits: chain 2 n and n - 1 tokens, sketch 2 n + 1 and floor(n / 2) + n - 2.
int prompt_tokens(const TaskConfig& task);
int response_tokens(const TaskConfig& task);

struct Problem {
    std::vector<int> prompt;
    std::vector<int> response;  // a right one: that of the program that the problem was made from

    std::string text() const;  // "3+5*2-7=869", "3+?*2-?=95867"
};

class Task {
public:
    // Reads the held-out problems from a file of one problem a line, prompt and response. Error for a missing file, a
    // malformed line, a response that does not fit or another number of digits.
    Task(const TaskConfig& config, const std::string& heldout_path);

    // A training problem, never with a held-out prompt; deterministic in its arguments: Philox key (seed, 1), counter
    // (step, index, digit, attempt).
    Problem training_problem(std::uint32_t seed, std::uint32_t step, std::uint32_t index) const;

    // The first `count` of them for one step.
    std::vector<Problem> training_problems(std::uint32_t seed, std::uint32_t step, int count) const;

    const std::vector<Problem>& heldout() const { return heldout_; }

private:
    TaskConfig config_;
    std::vector<Problem> heldout_;
    std::set<std::vector<int>> heldout_prompts_;
};

// The problem of a Philox stream: the generator of training and held-out problems alike.
Problem random_problem(const TaskConfig& task, std::uint32_t key0, std::uint32_t key1, std::uint32_t step,
                       std::uint32_t index, std::uint32_t attempt);

// The i-th problem of the held-out files: key "held", "out".
Problem heldout_problem(const TaskConfig& task, std::uint32_t i);

// Number of response tokens that count: up to and including the first end token, or all n. By position, so that
// anything after the first end token is left out whatever it is.
int response_length(const int* response, int n);

// The verifier: 1 if the n tokens are a complete and right response, else 0. n = response_tokens(task).
float reward(const TaskConfig& task, const Problem& problem, const int* response, int n);

// Number of right ways to fill the holes: 1 for a chain, which has none.
double right_answers(const TaskConfig& task, const Problem& problem);

}  // namespace quads
