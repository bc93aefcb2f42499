// Which table of operations a command runs on.
#pragma once

#include <string>

#include "src/operations.hpp"

namespace quads {

// "cpu", "reference" (the plain loops, slow), "cuda", or "auto": cuda where a usable GPU is present, else cpu with one
// line on stderr that says why. Error for other names, and for "cuda" without a usable GPU.
const Operations& operations_for(const std::string& device);

}  // namespace quads
