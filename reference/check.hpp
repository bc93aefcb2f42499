// One way to refuse bad input: a sentence that says what was expected, what was found and how to fix it.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace quads {

// Thrown for every error a user can cause; the command line prints what() and exits with 1.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws Error with the concatenation of all arguments: fail("K is ", K, ", expected at least 1.").
template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
    std::ostringstream sentence;
    (sentence << ... << parts);
    throw Error(sentence.str());
}

// fail(parts...) unless the condition holds.
template <typename... Parts>
void check(bool condition, const Parts&... parts) {
    if (!condition) fail(parts...);
}

}  // namespace quads
