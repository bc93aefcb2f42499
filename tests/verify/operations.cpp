// The table of operations: how a kernel is called, and what to show of the inputs of a wrong element.
#include "tests/verify/operations.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <tuple>
#include <type_traits>

#include "reference/codec.hpp"
#include "reference/dims.hpp"
#include "tests/verify/kernel.h"

using namespace quads;

namespace verify {
namespace {

// Calls a kernel of the given type: sizes and arrays come in the order of its parameters, each in a list of its own.
template <typename... Parameters>
struct Call;

template <typename T>
T argument(const int*& size, void* const*& array) {
    if constexpr (std::is_same_v<T, int>) {
        return *size++;
    } else {
        return static_cast<T>(*array++);
    }
}

template <typename... Parameters>
struct Call<void(Parameters...)> {
    static void run(void* kernel, const int* size, void* const* array) {
        // Braces evaluate from left to right, which a call's arguments do not.
        const std::tuple<Parameters...> arguments{argument<Parameters>(size, array)...};
        std::apply(reinterpret_cast<void (*)(Parameters...)>(kernel), arguments);
    }
};

std::string matrix_block(const Array& x, int row, int first, int end) {
    std::ostringstream text;
    text << std::setprecision(9) << x.name << "[" << row << "," << first << ".." << end - 1 << "] =";
    for (int k = first; k < end; ++k) text << " " << x.as<float>()[row * x.columns + k];
    return text.str();
}

// Codes of a block as values, its scale byte and the scale.
std::string packed_block(const Array& codes, const Array& scales, int row, int b) {
    std::ostringstream text;
    const std::uint8_t* packed = codes.as<std::uint8_t>() + row * codes.columns;
    const int scale = scales.as<std::uint8_t>()[row * scales.columns + b];
    text << codes.name << "[" << row << "] block " << b << ": scale 0x" << std::hex << scale << std::dec << " = "
         << e4m3_decode(static_cast<std::uint8_t>(scale)) << ", values";
    for (int k = b * kBlock; k < (b + 1) * kBlock; ++k) text << " " << e2m1_decode(code_at(packed, k));
    return text.str();
}

std::string describe_quantize(const Case& c, const Array& out, int row, int column) {
    if (std::string(out.name) == "outer") return "row " + std::to_string(column) + " of x has this outer scale";
    const Array& x = c.in[0];
    const int b = out.type == Type::codes ? column / (kBlock / 2) : column;
    return matrix_block(x, row, b * kBlock, std::min(x.columns, (b + 1) * kBlock));
}

std::string describe_dequantize(const Case& c, const Array&, int row, int column) {
    std::ostringstream text;
    text << packed_block(c.in[0], c.in[1], row, column / kBlock) << "; outer " << c.in[2].as<float>()[row];
    return text.str();
}

// The first block is where a mistake in packing or scales shows.
std::string describe_w4a4(const Case& c, const Array&, int row, int column) {
    const int w = c.in.size() == 8 ? 5 : 3;
    return packed_block(c.in[0], c.in[1], row, 0) + "\n        " + packed_block(c.in[w], c.in[w + 1], column, 0);
}

std::string describe_bf16(const Case& c, const Array&, int row, int column) {
    std::ostringstream text;
    text << "x[" << row << ",0] = " << bf16_from_bits(c.in[0].as<std::uint16_t>()[row * c.size[2]]) << ", w[" << column
         << ",0] = " << bf16_from_bits(c.in[1].as<std::uint16_t>()[column * c.size[2]]);
    return text.str();
}

std::string describe_row(const Case& c, const Array& out, int row, int column) {
    return matrix_block(c.in[0], out.rows == 1 ? column : row, 0, std::min(c.in[0].columns, kBlock));
}

}  // namespace

#define KERNEL(name) #name, Call < decltype(kernel_##name)> ::run

const std::vector<Operation>& operations() {
    static const std::vector<Operation> table{
        {KERNEL(quantize_nvfp4), "MK", quantize_cases, quantize_flaws(), describe_quantize},
        {KERNEL(dequantize_nvfp4), "MK", dequantize_cases, dequantize_flaws(), describe_dequantize},
        {KERNEL(gemm_w4a4), "MNK", gemm_w4a4_cases, gemm_w4a4_flaws(), describe_w4a4},
        {KERNEL(gemm_w4a4_residual), "MNK", gemm_w4a4_residual_cases, gemm_w4a4_residual_flaws(), describe_w4a4},
        {KERNEL(gemm_bf16), "MNK", gemm_bf16_cases, gemm_bf16_flaws(), describe_bf16},
        {KERNEL(rmsnorm), "TD", rmsnorm_cases, rmsnorm_flaws(), describe_row},
        {KERNEL(router_topk), "TES", router_cases, router_flaws(), describe_row},
    };
    return table;
}

}  // namespace verify
