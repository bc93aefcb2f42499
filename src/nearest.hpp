// What the user probably meant: messages about an unknown key, mode or option name the nearest valid one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace quads {

// Levenshtein's distance: insertions, deletions and replacements of one character that turn a into b.
std::size_t edit_distance(const std::string& a, const std::string& b);

// The valid name with the smallest edit distance to `name`, the first of equals; "" where there are none.
std::string nearest_name(const std::string& name, const std::vector<std::string>& valid);

}  // namespace quads
