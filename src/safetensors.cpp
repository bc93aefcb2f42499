#include "src/safetensors.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "src/files.hpp"
#include "src/json_text.hpp"
#include "src/nearest.hpp"

namespace quads {
namespace {

using nlohmann::json;

constexpr const char* kTypeNames[] = {"F32", "U8", "I32", "I64"};  // in the order of DataType
constexpr std::size_t kLengthBytes = 8;

std::uint64_t little_endian(const std::string& bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
        value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return value;
}

// Reads one entry of the header; its bytes lie in data[begin, end).
struct Entry {
    Tensor tensor;
    std::uint64_t begin, end;
};

Entry read_entry(const std::string& path, const std::string& name, const json& value) {
    const std::string what = path + ": tensor '" + name + "'";
    check(value.is_object() && value.contains("dtype") && value.contains("shape") && value.contains("data_offsets"),
          what, " lacks dtype, shape or data_offsets; the file is damaged.");
    Entry entry{};
    const json &type = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
    const auto known = std::find(std::begin(kTypeNames), std::end(kTypeNames),
                                 type.is_string() ? type.get<std::string>() : std::string());
    check(known != std::end(kTypeNames), what, " has type ", type.dump(), ", expected F32, U8, I32 or I64.");
    entry.tensor.type = static_cast<DataType>(known - std::begin(kTypeNames));
    check(shape.is_array() && offsets.is_array() && offsets.size() == 2, what, " has a malformed shape or range.");
    for (const json& size : shape) {
        check(size.is_number_unsigned(), what, " has shape ", shape.dump(), ", expected whole numbers.");
        entry.tensor.shape.push_back(size.get<std::int64_t>());
    }
    check(offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(), what, " has data_offsets ",
          offsets.dump(), ", expected two whole numbers.");
    entry.begin = offsets[0].get<std::uint64_t>();
    entry.end = offsets[1].get<std::uint64_t>();
    const std::int64_t elements = elements_of(entry.tensor.shape);
    check(elements >= 0 && entry.begin <= entry.end &&
              entry.end - entry.begin == static_cast<std::uint64_t>(elements) * bytes_of(entry.tensor.type),
          what, " has data_offsets ", offsets.dump(), ", which do not fit its shape ", shape.dump(), ".");
    return entry;
}

}  // namespace

const Tensor& Safetensors::find(const std::string& name, const std::vector<std::int64_t>& shape) const {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
        std::vector<std::string> names;
        for (const auto& [other, tensor] : tensors) names.push_back(other);
        fail(path, " has no tensor '", name, "'; the nearest of its ", names.size(), " is '", nearest_name(name, names),
             "'.");
    }
    check(found->second.shape == shape, path, ": tensor '", name, "' has shape ", shape_text(found->second.shape),
          ", expected ", shape_text(shape), ".");
    return found->second;
}

const std::string& Safetensors::text(const std::string& key) const {
    const auto found = metadata.find(key);
    check(found != metadata.end(), path, " has no metadata '", key, "'; it was not written by this program.");
    return found->second;
}

Safetensors read_safetensors(const std::string& path) {
    const std::string file = read_file(path);
    check(file.size() >= kLengthBytes, path, " has ", file.size(), " bytes, too few for a safetensors file.");
    const std::uint64_t length = little_endian(file);
    check(length <= file.size() - kLengthBytes, path, " is truncated or not a safetensors file: its header would need ",
          length, " bytes, and ", file.size() - kLengthBytes, " follow.");
    const std::string header_text = file.substr(kLengthBytes, length);
    const json header = json::parse(header_text, nullptr, false);
    check(header.is_object(), path, " is not a safetensors file: its header is not a JSON object.");

    Safetensors content;
    content.path = path;
    std::vector<std::pair<std::string, Entry>> entries;
    for (const auto& item : header.items()) {
        if (item.key() != "__metadata__") {
            entries.emplace_back(item.key(), read_entry(path, item.key(), item.value()));
            continue;
        }
        check(item.value().is_object(), path, " has metadata that is not an object of texts.");
        for (const auto& pair : item.value().items()) {
            check(pair.value().is_string(), path, " has metadata '", pair.key(), "' that is not a text.");
            content.metadata[pair.key()] = pair.value().get<std::string>();
        }
    }

    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
    });
    const std::uint64_t data = kLengthBytes + length, data_bytes = file.size() - data;
    std::uint64_t at = 0;
    for (auto& [name, entry] : entries) {
        check(entry.begin == at, path, ": tensor '", name, "' begins at byte ", entry.begin, ", expected ", at, ".");
        check(entry.end <= data_bytes, path, " is truncated: tensor '", name, "' ends at byte ", entry.end, " of ",
              data_bytes, ".");
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data() + data);
        entry.tensor.bytes.assign(bytes + entry.begin, bytes + entry.end);
        at = entry.end;
        content.tensors[name] = std::move(entry.tensor);
    }
    check(at == data_bytes, path, " has ", data_bytes - at, " bytes after its last tensor; the file is damaged.");
    return content;
}

void write_safetensors(const std::string& path, const Safetensors& content) {
    std::string header = "{", data;
    if (!content.metadata.empty()) {
        std::string metadata;
        for (const auto& [key, value] : content.metadata) {
            metadata += (metadata.empty() ? "" : ",") + json_string(key) + ":" + json_string(value);
        }
        header += "\"__metadata__\":{" + metadata + "}";
    }
    // Wide elements first keep every tensor aligned; within a width, by name.
    for (const std::size_t width : {8, 4, 1}) {
        for (const auto& [name, tensor] : content.tensors) {
            if (bytes_of(tensor.type) != width) continue;
            check(static_cast<std::size_t>(elements_of(tensor.shape)) * width == tensor.bytes.size(), "tensor '", name,
                  "' has ", tensor.bytes.size(), " bytes, which do not fit its shape ", shape_text(tensor.shape), ".");
            std::string shape = shape_text(tensor.shape);
            shape = "[" + shape.substr(1, shape.size() - 2) + "]";
            header += (header.size() > 1 ? "," : "") + json_string(name) + ":{\"dtype\":\"" +
                      kTypeNames[static_cast<int>(tensor.type)] + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
                      std::to_string(data.size()) + "," + std::to_string(data.size() + tensor.bytes.size()) + "]}";
            data.append(tensor.bytes.begin(), tensor.bytes.end());
        }
    }
    header += "}";
    header.resize((header.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
    std::string length;
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
        length += static_cast<char>(std::uint64_t{header.size()} >> (8 * i) & 255);
    }
    write_file_atomically(path, length + header + data);
}

}  // namespace quads
