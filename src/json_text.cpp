#include "src/json_text.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace quads {
namespace {

template <typename Float>
std::string shortest(Float value) {
    if (!std::isfinite(value)) return "null";
    char text[32];
    return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

}  // namespace

std::string json_number(double value) { return shortest(value); }
std::string json_number(float value) { return shortest(value); }

std::string json_string(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
            out += escape;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

}  // namespace quads
