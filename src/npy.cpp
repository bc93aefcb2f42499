#include "src/npy.hpp"

#include <charconv>

#include "src/files.hpp"

namespace quads {
namespace {

const std::string kMagic = "\x93NUMPY";
constexpr std::size_t kAlign = 64;  // of the first element

const char* descr_of(DataType type) {
    constexpr const char* kDescr[] = {"<f4", "|u1", "<i4", "<i8"};
    return kDescr[static_cast<int>(type)];
}

// The text after 'key': in the header's dictionary, up to the closing character for tuples or the next comma.
std::string field(const std::string& path, const std::string& header, const std::string& key) {
    std::size_t at = header.find("'" + key + "'");
    if (at != std::string::npos) at = header.find(':', at);
    check(at != std::string::npos, path, " has a damaged header: no '", key, "'.");
    at = header.find_first_not_of(' ', at + 1);
    check(at != std::string::npos, path, " has a damaged header: '", key, "' has no value.");
    const std::size_t end = header[at] == '(' ? header.find(')', at) : header.find_first_of(",}", at);
    check(end != std::string::npos, path, " has a damaged header: '", key, "' does not end.");
    return header.substr(at, end - at);
}

std::vector<std::int64_t> parse_shape(const std::string& path, const std::string& text) {
    std::vector<std::int64_t> shape;
    check(!text.empty() && text[0] == '(', path, " has a damaged header: the shape is ", text, ".");
    const char *at = text.data() + 1, *end = text.data() + text.size();
    while (at < end) {
        if (*at == ' ' || *at == ',') {
            ++at;
            continue;
        }
        std::int64_t size = 0;
        const auto [next, error] = std::from_chars(at, end, size);
        check(error == std::errc() && size >= 0, path, " has a damaged header: the shape is ", text, ").");
        shape.push_back(size);
        at = next;
    }
    return shape;
}

DataType parse_type(const std::string& path, const std::string& descr) {
    for (const DataType type : {DataType::f32, DataType::u8, DataType::i32}) {
        if (descr == "'" + std::string(descr_of(type)) + "'") return type;
    }
    fail(path, " holds type ", descr, ", expected float32 ('<f4'), uint8 ('|u1') or int32 ('<i4'); convert it with ",
         "array.astype.");
}

}  // namespace

Tensor read_npy(const std::string& path) {
    const std::string file = read_file(path);
    check(file.size() >= 10 && file.compare(0, kMagic.size(), kMagic) == 0, path,
          " is not an .npy file; write it with numpy.save.");
    const auto byte = [&](std::size_t i) { return std::size_t{static_cast<unsigned char>(file[i])}; };
    const std::size_t major = byte(6), length_bytes = major == 1 ? 2 : 4, start = 8 + length_bytes;
    check(major >= 1 && major <= 3, path, " has .npy version ", major, ", expected 1 to 3.");
    check(file.size() >= start, path, " is truncated inside its header.");
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
    check(length <= file.size() - start, path, " is truncated inside its header.");

    const std::string header = file.substr(start, length);
    Tensor tensor;
    tensor.type = parse_type(path, field(path, header, "descr"));
    tensor.shape = parse_shape(path, field(path, header, "shape"));
    const std::string order = field(path, header, "fortran_order");
    check(order == "False" || order == "True", path, " has a damaged header: fortran_order is ", order, ".");
    check(order == "False", path, " is in Fortran order, expected C order; convert it with numpy.ascontiguousarray.");
    check(tensor.shape.size() == 1 || tensor.shape.size() == 2, path, " has shape ", shape_text(tensor.shape),
          ", expected one or two dimensions.");
    const std::int64_t elements = elements_of(tensor.shape);
    const std::size_t found = file.size() - start - length;
    check(elements >= 0 && static_cast<std::size_t>(elements) * bytes_of(tensor.type) == found, path, " has ", found,
          " bytes of data, which do not fit its shape ", shape_text(tensor.shape), " of ", name_of(tensor.type),
          "; it is truncated or damaged.");
    const auto* data = reinterpret_cast<const std::uint8_t*>(file.data() + start + length);
    tensor.bytes.assign(data, data + found);
    return tensor;
}

void write_npy(const std::string& path, const Tensor& tensor) {
    std::string shape = shape_text(tensor.shape);
    if (tensor.shape.size() == 1) shape.insert(shape.size() - 1, ",");
    std::string header =
        "{'descr': '" + std::string(descr_of(tensor.type)) + "', 'fortran_order': False, 'shape': " + shape + ", }";
    const std::size_t before = kMagic.size() + 4;
    header.resize((before + header.size() + 1 + kAlign - 1) / kAlign * kAlign - before - 1, ' ');
    header += '\n';
    std::string file = kMagic + std::string("\x01\x00", 2);
    file += static_cast<char>(header.size() & 255);
    file += static_cast<char>(header.size() >> 8);
    write_file_atomically(path, file + header + std::string(tensor.bytes.begin(), tensor.bytes.end()));
}

}  // namespace quads
