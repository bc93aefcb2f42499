// Safetensors files, the format of checkpoints: 8 bytes of header length, a JSON header, the tensors' bytes.
//   {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
// Written by hand after the format's description; the same content always gives the same bytes. Little endian.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/tensor.hpp"

namespace quads {

struct Safetensors {
    std::map<std::string, std::string> metadata;
    std::map<std::string, Tensor> tensors;

    // The elements of a tensor; Error that names the file, the tensor, what was expected and what was found.
    template <typename T>
    std::vector<T> values(const std::string& name, const std::vector<std::int64_t>& shape) const {
        return find(name, shape).values<T>(path + ": tensor '" + name + "'");
    }
    const Tensor& find(const std::string& name, const std::vector<std::int64_t>& shape) const;

    // The metadata's text for `key`; Error where it is missing.
    const std::string& text(const std::string& key) const;

    std::string path;  // where it was read from, for messages
};

// Error, one sentence, for a missing, truncated, malformed or foreign file, for types other than F32, U8, I32, I64, and
// for tensors that overlap, leave holes or do not fill the file.
Safetensors read_safetensors(const std::string& path);

// Atomic: see write_file_atomically.
void write_safetensors(const std::string& path, const Safetensors& content);

}  // namespace quads
