#include "src/nearest.hpp"

#include <algorithm>
#include <numeric>

namespace quads {

// One row of the dynamic programme's table at a time.
std::size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& valid) {
    const auto closer = [&](const std::string& a, const std::string& b) {
        return edit_distance(name, a) < edit_distance(name, b);
    };
    const auto best = std::min_element(valid.begin(), valid.end(), closer);
    return best == valid.end() ? std::string() : *best;
}

}  // namespace quads
