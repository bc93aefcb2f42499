// quads op: one reference operation on arrays from files, to check a kernel written elsewhere.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <utility>

#include "reference/codec.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_w4a4.hpp"
#include "reference/nvfp4.hpp"
#include "reference/oracles.hpp"
#include "src/commands/arguments.hpp"
#include "src/commands/commands.hpp"
#include "src/files.hpp"
#include "src/nearest.hpp"
#include "src/npy.hpp"

namespace quads {
namespace {

const Command kCommand{
    "op",
    "Runs one operation of reference/ on your own arrays and writes the result as .npy files: the bits that a kernel\n"
    "of yours must give. GEMMs compute y[m,n] = sum_k x[m,k] w[n,k].\n"
    "\n"
    "  NAME                      inputs, in this order                       outputs in DIR\n"
    "  quantize_nvfp4            x                                           codes scales outer\n"
    "  quantize_nvfp4_residual   x                                           codes scales outer residual_codes\n"
    "                                                                        residual_scales\n"
    "  dequantize_nvfp4          codes scales outer                          x\n"
    "  gemm_w4a4                 x w                                         y\n"
    "    with --packed           x_codes x_scales x_outer\n"
    "                            w_codes w_scales w_outer                    y\n"
    "  gemm_w4a4_residual        x w                                         y\n"
    "    with --packed           x_codes x_scales x_outer residual_codes\n"
    "                            residual_scales w_codes w_scales w_outer    y\n"
    "  gemm_w4a4_tensor_core     as gemm_w4a4: Blackwell's mxf4nvf4, a\n"
    "                            model not yet confirmed on hardware         y\n"
    "  gemm_bf16                 x w (rounded to BF16 first)                 y\n"
    "  gemm_bf16_tensor_core     x w (rounded to BF16 first): the bits of\n"
    "                            Hopper's mma.m16n8k16                       y\n"
    "\n"
    "  file             shape        type     content\n"
    "  x, w             (M,K) (N,K)  float32  finite, C order, K >= 1\n"
    "  codes            (rows, 8 B)  uint8    E2M1, two a byte, even column in the low nibble; B = ceil(K / 16)\n"
    "  scales           (rows, B)    uint8    E4M3 scale of 16 columns, 0 to 126\n"
    "  outer            (rows) (1)   float32  outer scale per row, or one for the matrix (always so for w)\n"
    "  residual_codes   (M, 8 B)     uint8    second pass of residual activation compensation; its outer scale is x's\n"
    "  residual_scales  (M, B)       uint8\n"
    "  y                (M, N)       float32\n"
    "\n"
    "GEMMs quantise x and w as training does: x with one outer scale per row, w with one for the matrix. The input "
    "files\n"
    "may have any name. Nothing is written where an input is refused.",
    "NAME IN.npy ...",
    {
        {"--out", "DIR", "folder of the results, made where it is missing"},
        {"--outer", "row|matrix", "rows that share an outer scale of x (default row)"},
        {"--ratio", "R", "share of channels in the second pass, 0 to 1 (default 0.5)"},
        {"--select", "batch|token|random", "how the second pass chooses its channels (default batch)"},
        {"--packed", "", "the inputs of a W4A4 GEMM are already quantised"},
        {"--columns", "K", "columns of the dequantised x (default 16 B)"},
    }};

using Outputs = std::vector<std::pair<std::string, Tensor>>;

// A packed matrix with its arrays; one group of rows.
struct Packed {
    int rows, K;
    OuterScale outer_scale;
    std::vector<std::uint8_t> codes, scales;
    std::vector<float> outer;
    int offsets[2];

    Packed(int rows, int K, OuterScale outer_scale)
        : rows(rows),
          K(K),
          outer_scale(outer_scale),
          codes(std::size_t(rows) * code_bytes_of(K)),
          scales(std::size_t(rows) * blocks_of(K)),
          outer(outer_scale == OuterScale::row ? rows : 1),
          offsets{0, rows} {}

    Nvfp4 view() { return {codes.data(), scales.data(), outer.data(), outer_scale}; }
    Groups groups() const { return {offsets, 1}; }
    Tensor codes_tensor() const { return Tensor::of(codes, {rows, code_bytes_of(K)}); }
    Tensor scales_tensor() const { return Tensor::of(scales, {rows, blocks_of(K)}); }
};

struct Matrix {
    int rows, columns;
    std::vector<float> values;
};

template <typename T>
Tensor read_array(const std::string& path, std::size_t dimensions, const char* expected) {
    Tensor tensor = read_npy(path);
    check(tensor.type == data_type_of<T>() && tensor.shape.size() == dimensions, path, " is ", name_of(tensor.type),
          " ", shape_text(tensor.shape), ", expected ", expected, ".");
    for (const std::int64_t size : tensor.shape) {
        check(size >= 1 && size < (1 << 24), path, " has shape ", shape_text(tensor.shape),
              ", expected 1 to 16777215 in each dimension.");
    }
    return tensor;
}

Matrix read_matrix(const std::string& path) {
    const Tensor tensor = read_array<float>(path, 2, "a float32 matrix (rows, K)");
    Matrix matrix{int(tensor.shape[0]), int(tensor.shape[1]), tensor.values<float>(path)};
    for (std::size_t i = 0; i < matrix.values.size(); ++i) {
        check(std::isfinite(matrix.values[i]), path, " holds ", matrix.values[i], " at row ", i / matrix.columns,
              ", column ", i % matrix.columns, "; NVFP4 has neither NaN nor infinity.");
    }
    return matrix;
}

// Codes and scales of any number of rows.
Packed read_packed(const std::string& codes_path, const std::string& scales_path, OuterScale outer_scale) {
    const Tensor codes = read_array<std::uint8_t>(codes_path, 2, "uint8 codes (rows, 8 B)");
    const Tensor scales = read_array<std::uint8_t>(scales_path, 2, "uint8 scales (rows, B)");
    check(codes.shape[0] == scales.shape[0] && codes.shape[1] == scales.shape[1] * (kBlock / 2), codes_path,
          " has shape ", shape_text(codes.shape), " and ", scales_path, " ", shape_text(scales.shape),
          ", expected (rows, 8 B) and (rows, B).");
    Packed packed(int(codes.shape[0]), int(scales.shape[1]) * kBlock, outer_scale);
    packed.codes = codes.values<std::uint8_t>(codes_path);
    packed.scales = scales.values<std::uint8_t>(scales_path);
    for (std::size_t i = 0; i < packed.scales.size(); ++i) {
        check(packed.scales[i] < 0x7F, scales_path, " holds byte ", int(packed.scales[i]), " at row ",
              std::int64_t(i) / scales.shape[1], ", column ", std::int64_t(i) % scales.shape[1],
              ", expected 0 to 126: a scale is neither negative nor NaN.");
    }
    return packed;
}

// The same with outer scales: one per row, or one for the matrix.
Packed read_packed(const std::string& codes, const std::string& scales, const std::string& outer_path) {
    const Tensor outer = read_array<float>(outer_path, 1, "float32 outer scales (rows) or (1)");
    Packed packed = read_packed(codes, scales, outer.shape[0] == 1 ? OuterScale::group : OuterScale::row);
    check(outer.shape[0] == packed.rows || outer.shape[0] == 1, outer_path, " has shape ", shape_text(outer.shape),
          ", expected (", packed.rows, ") or (1).");
    packed.outer = outer.values<float>(outer_path);
    for (const float g : packed.outer) {
        check(std::isfinite(g) && g > 0.0f, outer_path, " holds ", g, ", expected finite outer scales above 0.");
    }
    return packed;
}

Packed quantize(const Matrix& x, OuterScale outer_scale) {
    Packed packed(x.rows, x.columns, outer_scale);
    reference::quantize_nvfp4(x.values.data(), packed.groups(), x.rows, x.columns, packed.view());
    return packed;
}

struct Request {
    std::vector<std::string> files;
    OuterScale outer_scale;
    float ratio;
    ResidualSelection selection;
    bool packed;
    int columns;
};

Packed quantize_residual(const Matrix& x, Packed& main, const Request& request) {
    Packed residual(x.rows, x.columns, main.outer_scale);
    reference::quantize_nvfp4_residual(x.values.data(), main.view(), main.groups(), x.rows, x.columns, request.ratio,
                                       request.selection, residual.view());
    return residual;
}

void check_widths(int x, int w) { check(x == w, "x has ", x, " columns and w has ", w, ", expected the same K."); }

Outputs run_quantize(const Request& request) {
    Packed packed = quantize(read_matrix(request.files[0]), request.outer_scale);
    return {{"codes", packed.codes_tensor()},
            {"scales", packed.scales_tensor()},
            {"outer", Tensor::of(packed.outer, {std::int64_t(packed.outer.size())})}};
}

Outputs run_quantize_residual(const Request& request) {
    const Matrix x = read_matrix(request.files[0]);
    Outputs outputs = run_quantize(request);
    Packed main = quantize(x, request.outer_scale);
    const Packed residual = quantize_residual(x, main, request);
    outputs.emplace_back("residual_codes", residual.codes_tensor());
    outputs.emplace_back("residual_scales", residual.scales_tensor());
    return outputs;
}

Outputs run_dequantize(const Request& request) {
    Packed packed = read_packed(request.files[0], request.files[1], request.files[2]);
    const int K = request.columns == 0 ? packed.K : request.columns;
    check(blocks_of(K) * kBlock == packed.K, "--columns is ", K, ", expected ", packed.K - kBlock + 1, " to ", packed.K,
          " for ", packed.K / kBlock, " scales a row.");
    std::vector<float> x(std::size_t(packed.rows) * K);
    reference::dequantize_nvfp4(packed.view(), packed.groups(), packed.rows, K, true, x.data());
    return {{"x", Tensor::of(x, {packed.rows, K})}};
}

void check_matrix_outer(const Packed& w) {
    check(w.outer_scale == OuterScale::group, "w has ", w.outer.size(), " outer scales, expected one for the matrix.");
}

// Both operands from their six files, or quantised from x and w.
std::pair<Packed, Packed> read_operands(const Request& request) {
    const std::vector<std::string>& f = request.files;
    if (request.packed) {
        std::pair<Packed, Packed> packed{read_packed(f[0], f[1], f[2]), read_packed(f[3], f[4], f[5])};
        check_widths(packed.first.K, packed.second.K);
        check_matrix_outer(packed.second);
        return packed;
    }
    const Matrix x = read_matrix(f[0]), w = read_matrix(f[1]);
    check_widths(x.columns, w.columns);
    return {quantize(x, request.outer_scale), quantize(w, OuterScale::group)};
}

template <auto gemm>
Outputs run_gemm_w4a4(const Request& request) {
    auto [x, w] = read_operands(request);
    std::vector<float> y(std::size_t(x.rows) * w.rows);
    gemm(x.view(), w.view(), x.groups(), x.rows, w.rows, x.K, y.data());
    return {{"y", Tensor::of(y, {x.rows, w.rows})}};
}

Outputs run_gemm_w4a4_residual(const Request& request) {
    Request operands = request;
    if (request.packed) operands.files.erase(operands.files.begin() + 3, operands.files.begin() + 5);
    auto [x, w] = read_operands(operands);
    Packed residual = request.packed ? read_packed(request.files[3], request.files[4], x.outer_scale)
                                     : quantize_residual(read_matrix(request.files[0]), x, request);
    check(residual.rows == x.rows && residual.K == x.K, "the residual has ", residual.rows, " rows of ", residual.K,
          " columns, expected x's ", x.rows, " of ", x.K, ".");
    std::vector<float> y(std::size_t(x.rows) * w.rows);
    reference::fast::gemm_w4a4_residual(x.view(), residual.view(), w.view(), x.groups(), x.rows, w.rows, x.K, y.data());
    return {{"y", Tensor::of(y, {x.rows, w.rows})}};
}

template <auto gemm>
Outputs run_gemm_bf16(const Request& request) {
    Matrix x = read_matrix(request.files[0]), w = read_matrix(request.files[1]);
    check_widths(x.columns, w.columns);
    for (float& value : x.values) value = bf16_round(value);
    for (float& value : w.values) value = bf16_round(value);
    std::vector<float> y(std::size_t(x.rows) * w.rows);
    const int offsets[] = {0, x.rows};
    gemm(x.values.data(), w.values.data(), nullptr, {offsets, 1}, x.rows, w.rows, x.columns, y.data());
    return {{"y", Tensor::of(y, {x.rows, w.rows})}};
}

struct Operation {
    std::string name;
    std::size_t inputs, packed_inputs;  // number of files; 0 where --packed does not apply
    std::vector<std::string> options;   // that apply, besides --out
    Outputs (*run)(const Request& request);
};

const std::vector<Operation> kOperations{
    {"quantize_nvfp4", 1, 0, {"--outer"}, run_quantize},
    {"quantize_nvfp4_residual", 1, 0, {"--outer", "--ratio", "--select"}, run_quantize_residual},
    {"dequantize_nvfp4", 3, 0, {"--columns"}, run_dequantize},
    {"gemm_w4a4", 2, 6, {"--outer", "--packed"}, run_gemm_w4a4<reference::fast::gemm_w4a4>},
    {"gemm_w4a4_tensor_core", 2, 6, {"--outer", "--packed"}, run_gemm_w4a4<reference::gemm_w4a4_tensor_core>},
    {"gemm_w4a4_residual", 2, 8, {"--outer", "--packed", "--ratio", "--select"}, run_gemm_w4a4_residual},
    {"gemm_bf16", 2, 0, {}, run_gemm_bf16<reference::fast::gemm_bf16>},
    {"gemm_bf16_tensor_core", 2, 0, {}, run_gemm_bf16<reference::gemm_bf16_tensor_core>},
};

const Operation& find_operation(const std::string& name) {
    std::vector<std::string> names;
    for (const Operation& operation : kOperations) {
        if (operation.name == name) return operation;
        names.push_back(operation.name);
    }
    fail("there is no operation '", name, "'; the nearest is ", nearest_name(name, names), "; see quads op --help.");
}

// The place of an option's value in a list of names; 0 where it is not given.
int choice(const Arguments& arguments, const std::string& option, const std::vector<std::string>& names) {
    const std::string name = arguments.value(option).value_or(names[0]);
    const auto found = std::find(names.begin(), names.end(), name);
    check(found != names.end(), option, " is '", name, "'; the nearest valid name is ", nearest_name(name, names), ".");
    return int(found - names.begin());
}

}  // namespace

int op_command(const std::vector<std::string>& raw) {
    const Arguments arguments(raw, kCommand);
    check(!arguments.positionals().empty(), "quads op needs the name of an operation; see quads op --help.");
    const Operation& operation = find_operation(arguments.positionals()[0]);
    for (const Option& option : kCommand.options) {
        const bool applies =
            option.name == "--out" || std::count(operation.options.begin(), operation.options.end(), option.name) > 0;
        check(applies || arguments.values(option.name).empty(), option.name, " does not apply to ", operation.name,
              ".");
    }
    const double ratio = arguments.number("--ratio").value_or(0.5);
    check(ratio >= 0 && ratio <= 1, "--ratio is ", ratio, ", expected 0 to 1.");
    const std::string folder = arguments.required("--out");
    const Request request{{arguments.positionals().begin() + 1, arguments.positionals().end()},
                          choice(arguments, "--outer", {"row", "matrix"}) == 0 ? OuterScale::row : OuterScale::group,
                          float(ratio),
                          static_cast<ResidualSelection>(choice(arguments, "--select", {"batch", "token", "random"})),
                          arguments.flag("--packed"),
                          int(arguments.integer("--columns", 1, 1 << 24).value_or(0))};
    const std::size_t expected = request.packed ? operation.packed_inputs : operation.inputs;
    check(request.files.size() == expected, operation.name, request.packed ? " --packed" : "", " takes ", expected,
          " files, found ", request.files.size(), "; see quads op --help.");

    const Outputs outputs = operation.run(request);
    for (const auto& [name, tensor] : outputs) {
        const std::string path = (std::filesystem::path(folder) / (name + ".npy")).string();
        create_parent_folder(path);
        write_npy(path, tensor);
        std::cout << path << "  " << name_of(tensor.type) << " " << shape_text(tensor.shape) << "\n";
    }
    return 0;
}

}  // namespace quads
