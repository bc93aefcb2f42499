// An array as it lies in a file: type, shape and little-endian bytes in C order.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "reference/check.hpp"

namespace quads {

enum class DataType { f32, u8, i32, i64 };

template <typename T>
constexpr DataType data_type_of() {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::int32_t> ||
                  std::is_same_v<T, std::int64_t>);
    if (std::is_same_v<T, float>) return DataType::f32;
    if (std::is_same_v<T, std::uint8_t>) return DataType::u8;
    return std::is_same_v<T, std::int32_t> ? DataType::i32 : DataType::i64;
}

inline std::size_t bytes_of(DataType type) { return type == DataType::u8 ? 1 : type == DataType::i64 ? 8 : 4; }

inline const char* name_of(DataType type) {
    constexpr const char* kNames[] = {"float32", "uint8", "int32", "int64"};
    return kNames[static_cast<int>(type)];
}

struct Tensor {
    DataType type = DataType::f32;
    std::vector<std::int64_t> shape;
    std::vector<std::uint8_t> bytes;

    // A copy of `values`, which has as many elements as the shape says.
    template <typename T>
    static Tensor of(const std::vector<T>& values, const std::vector<std::int64_t>& shape) {
        Tensor tensor{data_type_of<T>(), shape, std::vector<std::uint8_t>(values.size() * sizeof(T))};
        if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
        return tensor;
    }

    // The elements; Error that calls the array `name` where they are not of type T.
    template <typename T>
    std::vector<T> values(const std::string& name) const {
        check(type == data_type_of<T>(), name, " holds ", name_of(type), ", expected ", name_of(data_type_of<T>()),
              ".");
        std::vector<T> copy(bytes.size() / sizeof(T));
        if (!copy.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
        return copy;
    }
};

// "(3, 4)"
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string text = "(";
    for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + ")";
}

// Elements of a shape read from a file, or -1 where it has a negative size or more than 2^40 elements.
inline std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    std::int64_t elements = 1;
    for (const std::int64_t size : shape) {
        if (size < 0 || size > kMost) return -1;
        if (size > 0 && elements > kMost / size) return -1;
        elements *= size;
    }
    return elements;
}

}  // namespace quads
