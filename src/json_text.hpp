// Numbers and strings as JSON text. Written by hand so that the same value always gives the same bytes, and so that a
// float 0.3 reads 0.3: the shortest text that reads back to the same bits.
#pragma once

#include <string>

namespace quads {

// "null" for NaN and infinities, which JSON cannot hold.
std::string json_number(double value);
std::string json_number(float value);

// Quoted, with the escapes that JSON asks for. Bytes from 0x80 on pass through (UTF-8).
std::string json_string(const std::string& text);

}  // namespace quads
