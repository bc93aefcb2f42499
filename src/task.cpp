#include "src/task.hpp"

#include <fstream>

#include "reference/check.hpp"
#include "reference/philox.hpp"

namespace quads {
namespace {

const char kSymbols[] = "0123456789+-*=";
constexpr int kPlus = 10, kMinus = 11, kTimes = 12, kEquals = 13;

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

std::vector<int> running_values(const std::vector<int>& prompt) {
    std::vector<int> values;
    int value = prompt[0];
    for (std::size_t i = 2; i + 1 < prompt.size(); i += 2) {
        value = apply(prompt[i - 1], value, prompt[i]);
        values.push_back(value);
    }
    return values;
}

// Error unless the line is a correct chain of `digits` digits.
Chain parse_chain(const std::string& line, int digits, const std::string& place) {
    const std::size_t length = 2 * digits + digits - 1;
    check(line.size() == length, place, " holds ", line.size(), " characters, expected ", length, " for a chain of ",
          digits, " digits such as '3+5*2=86'. Use a held-out file that fits task.digits.");
    std::vector<int> tokens;
    for (std::size_t i = 0; i < length; ++i) {
        const std::size_t symbol = std::string(kSymbols).find(line[i]);
        const bool operation = i % 2 == 1 && i < 2u * digits;
        const bool fits = symbol != std::string::npos && (i + 1 == 2u * digits ? symbol == kEquals
                                                          : operation          ? symbol >= 10 && symbol != kEquals
                                                                               : symbol < 10);
        check(fits, place, " has '", line[i], "' at column ", i + 1, ", expected ",
              operation ? "+, -, * or =" : "a digit", ".");
        tokens.push_back(static_cast<int>(symbol));
    }
    Chain chain{{tokens.begin(), tokens.begin() + 2 * digits}, {tokens.begin() + 2 * digits, tokens.end()}};
    check(chain.response == running_values(chain.prompt), place, " has wrong running values after '='.");
    return chain;
}

}  // namespace

std::string Chain::text() const {
    std::string text;
    for (const std::vector<int>* part : {&prompt, &response}) {
        for (int token : *part) text += kSymbols[token];
    }
    return text;
}

Chain random_chain(int digits, std::uint32_t key0, std::uint32_t key1, std::uint32_t step, std::uint32_t index,
                   std::uint32_t attempt) {
    Chain chain;
    for (int i = 0; i < digits; ++i) {
        const PhiloxWords words = philox4x32_10({{step, index, static_cast<std::uint32_t>(i), attempt}}, key0, key1);
        // The modulus favours no value by more than 10 / 2^32.
        chain.prompt.push_back(static_cast<int>(words.word[0] % 10));
        chain.prompt.push_back(i + 1 < digits ? kPlus + static_cast<int>(words.word[1] % 3) : kEquals);
    }
    chain.response = running_values(chain.prompt);
    return chain;
}

Chain heldout_chain(int digits, std::uint32_t i) { return random_chain(digits, 0x68656c64u, 0x006f7574u, 0, i, 0); }

ChainTask::ChainTask(const TaskConfig& config, const std::string& heldout_path) : digits_(config.digits) {
    std::ifstream file(heldout_path);
    check(file.good(), "The held-out file '", heldout_path,
          "' cannot be read. Run from the repository's root, or set heldout.");
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
        if (line.empty() || line[0] == '#') continue;
        heldout_.push_back(parse_chain(line, digits_, heldout_path + " line " + std::to_string(number)));
        heldout_prompts_.insert(heldout_.back().prompt);
    }
    check(!heldout_.empty(), "The held-out file '", heldout_path, "' holds no chain.");
}

Chain ChainTask::training_chain(std::uint32_t seed, std::uint32_t step, std::uint32_t index) const {
    for (std::uint32_t attempt = 0;; ++attempt) {
        Chain chain = random_chain(digits_, seed, 1, step, index, attempt);
        if (heldout_prompts_.count(chain.prompt) == 0) return chain;
    }
}

std::vector<Chain> ChainTask::training_chains(std::uint32_t seed, std::uint32_t step, int count) const {
    std::vector<Chain> chains;
    for (int i = 0; i < count; ++i) chains.push_back(training_chain(seed, step, static_cast<std::uint32_t>(i)));
    return chains;
}

int response_length(const int* response, int n) {
    for (int j = 0; j < n; ++j) {
        if (response[j] == kEndToken) return j + 1;
    }
    return n;
}

float reward(const Chain& chain, const int* response, int n) {
    const bool complete = response_length(response, n) == n && response[n - 1] != kEndToken;
    return complete && response[n - 1] == chain.response.back() ? 1.0f : 0.0f;
}

}  // namespace quads
