#include "src/task.hpp"

#include <algorithm>
#include <array>
#include <fstream>

#include "reference/check.hpp"
#include "reference/philox.hpp"

namespace quads {
namespace {

const std::string kSymbols = "0123456789+-*=.?";
constexpr int kPlus = 10, kMinus = 11, kTimes = 12, kEquals = 13, kHole = 15;

bool is_digit(int token) { return token >= 0 && token < 10; }
bool is_operator(int token) { return token >= kPlus && token <= kTimes; }

int apply(int operation, int a, int b) {
    switch (operation) {
        case kPlus:
            return (a + b) % 10;
        case kMinus:
            return (a - b + 10) % 10;
        default:
            return (a * b) % 10;
    }
}

// What every problem is made from: n digits and the n - 1 operators between them.
struct Program {
    std::vector<int> digits, operators;

    std::vector<int> running_values() const {
        std::vector<int> values;
        int value = digits[0];
        for (std::size_t i = 0; i < operators.size(); ++i) {
            value = apply(operators[i], value, digits[i + 1]);
            values.push_back(value);
        }
        return values;
    }
};

Problem problem_of(TaskKind kind, const Program& program) {
    const std::vector<int> values = program.running_values();
    const std::size_t n = program.digits.size();
    Problem problem;
    for (std::size_t i = 0; i < n; ++i) {
        const bool hole = kind == TaskKind::sketch && i % 2 == 1;
        problem.prompt.push_back(hole ? kHole : program.digits[i]);
        problem.prompt.push_back(i + 1 < n ? program.operators[i] : kEquals);
        if (hole) problem.response.push_back(program.digits[i]);
        if (i > 0) problem.response.push_back(values[i - 1]);
    }
    if (kind == TaskKind::sketch) {
        // The last value is the one asked for.
        problem.prompt.push_back(values.back());
        problem.response.pop_back();
    }
    return problem;
}

// The program of a prompt of n digits, its holes filled from the response.
Program filled(const std::vector<int>& prompt, const int* response, int n) {
    Program program;
    int next = 0;  // in the response, where a value follows every digit but the first
    for (int i = 0; i < n; ++i) {
        const int token = prompt[2 * i];
        program.digits.push_back(token == kHole ? response[next++] : token);
        if (i > 0) ++next;
        if (i + 1 < n) program.operators.push_back(prompt[2 * i + 1]);
    }
    return program;
}

// Error unless the line is prompt and response of a problem.
Problem parse_problem(const std::string& line, const TaskConfig& task, const std::string& place) {
    const std::vector<int> twos(task.digits, 2), pluses(task.digits - 1, kPlus);
    const std::string example = problem_of(task.kind, {twos, pluses}).text();
    check(line.size() == example.size(), place, " holds ", line.size(), " characters, expected ", example.size(),
          " for ", task.digits, " digits, such as '", example, "'. Use a held-out file that fits `task`.");
    std::vector<int> tokens;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const int token = static_cast<int>(kSymbols.find(line[i]));  // -1 where there is no such symbol
        const bool fits = example[i] == '+' ? is_operator(token) : example[i] == '=' || example[i] == '?'
                                                                 ? line[i] == example[i]
                                                                 : is_digit(token);
        check(fits, place, " has '", line[i], "' at column ", i + 1, ", expected a line such as '", example, "'.");
        tokens.push_back(token);
    }
    const std::vector<int> prompt(tokens.begin(), tokens.begin() + prompt_tokens(task));
    Problem problem = problem_of(task.kind, filled(prompt, &tokens[prompt.size()], task.digits));
    check(problem.text() == line, place, " has wrong values, expected '", problem.text(), "'.");
    return problem;
}

}  // namespace

int prompt_tokens(const TaskConfig& task) { return 2 * task.digits + (task.kind == TaskKind::sketch); }

int response_tokens(const TaskConfig& task) {
    return task.kind == TaskKind::sketch ? task.digits / 2 + task.digits - 2 : task.digits - 1;
}

std::string Problem::text() const {
    std::string text;
    for (const std::vector<int>* part : {&prompt, &response}) {
        for (int token : *part) text += kSymbols[token];
    }
    return text;
}

Problem random_problem(const TaskConfig& task, std::uint32_t key0, std::uint32_t key1, std::uint32_t step,
                       std::uint32_t index, std::uint32_t attempt) {
    Program program;
    for (int i = 0; i < task.digits; ++i) {
        const PhiloxWords words = philox4x32_10({{step, index, static_cast<std::uint32_t>(i), attempt}}, key0, key1);
        // The modulus favours no value by more than 10 / 2^32.
        program.digits.push_back(static_cast<int>(words.word[0] % 10));
        if (i + 1 < task.digits) program.operators.push_back(kPlus + static_cast<int>(words.word[1] % 3));
    }
    return problem_of(task.kind, program);
}

Problem heldout_problem(const TaskConfig& task, std::uint32_t i) {
    return random_problem(task, 0x68656c64u, 0x006f7574u, 0, i, 0);
}

Task::Task(const TaskConfig& config, const std::string& heldout_path) : config_(config) {
    std::ifstream file(heldout_path);
    check(file.good(), "The held-out file '", heldout_path,
          "' cannot be read. Run from the repository's root, or set heldout.");
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
        if (line.empty() || line[0] == '#') continue;
        heldout_.push_back(parse_problem(line, config_, heldout_path + " line " + std::to_string(number)));
        heldout_prompts_.insert(heldout_.back().prompt);
    }
    check(!heldout_.empty(), "The held-out file '", heldout_path, "' holds no problem.");
}

Problem Task::training_problem(std::uint32_t seed, std::uint32_t step, std::uint32_t index) const {
    for (std::uint32_t attempt = 0;; ++attempt) {
        Problem problem = random_problem(config_, seed, 1, step, index, attempt);
        if (heldout_prompts_.count(problem.prompt) == 0) return problem;
    }
}

std::vector<Problem> Task::training_problems(std::uint32_t seed, std::uint32_t step, int count) const {
    std::vector<Problem> problems;
    for (int i = 0; i < count; ++i) problems.push_back(training_problem(seed, step, static_cast<std::uint32_t>(i)));
    return problems;
}

int response_length(const int* response, int n) {
    for (int j = 0; j < n; ++j) {
        if (response[j] == kEndToken) return j + 1;
    }
    return n;
}

float reward(const TaskConfig& task, const Problem& problem, const int* response, int n) {
    if (task.kind == TaskKind::chain) {
        const bool complete = response_length(response, n) == n && response[n - 1] != kEndToken;
        return complete && response[n - 1] == problem.response.back() ? 1.0f : 0.0f;
    }
    if (!std::all_of(response, response + n, is_digit)) return 0.0f;
    const int value = filled(problem.prompt, response, task.digits).running_values().back();
    return value == problem.prompt.back() ? 1.0f : 0.0f;
}

double right_answers(const TaskConfig& task, const Problem& problem) {
    if (task.kind == TaskKind::chain) return 1;
    std::array<double, 10> programs{};  // how many reach each value with the digits so far
    programs[problem.prompt[0]] = 1;
    for (int i = 1; i < task.digits; ++i) {
        const int operation = problem.prompt[2 * i - 1], token = problem.prompt[2 * i];
        std::array<double, 10> longer{};
        for (int value = 0; value < 10; ++value) {
            for (int digit = 0; digit < 10; ++digit) {
                if (token == kHole || token == digit) longer[apply(operation, value, digit)] += programs[value];
            }
        }
        programs = longer;
    }
    return programs[problem.prompt.back()];
}

}  // namespace quads
