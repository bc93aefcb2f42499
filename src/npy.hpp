// NumPy's .npy files: float32, uint8 and int32 arrays of one or two dimensions, C order, little endian.
//   "\x93NUMPY" major minor, header length, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n, bytes
#pragma once

#include <string>

#include "src/tensor.hpp"

namespace quads {

// Error, one sentence, for a missing, truncated or foreign file and for arrays of another type, order or rank.
Tensor read_npy(const std::string& path);

// Atomic: see write_file_atomically.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace quads
