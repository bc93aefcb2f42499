// quads op gives the bits of the reference it names, through files.
#include <iostream>
#include <random>
#include <sstream>

#include "reference/codec.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_w4a4.hpp"
#include "reference/oracles.hpp"
#include "src/commands/commands.hpp"
#include "src/npy.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

using namespace quads;

namespace {

constexpr int kM = 5, kN = 7, kK = 50;  // K is not a multiple of 16

std::vector<float> random_values(int n, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& value : values) value = normal(random);
    return values;
}

// Runs the command without its list of written files.
void run(const std::vector<std::string>& arguments) {
    std::ostringstream listing;
    std::streambuf* old = std::cout.rdbuf(listing.rdbuf());
    const int status = op_command(arguments);
    std::cout.rdbuf(old);
    REQUIRE(status == 0);
}

template <typename T>
void same_bytes(const std::string& path, const std::vector<T>& expected, const std::vector<std::int64_t>& shape) {
    INFO(path);
    const Tensor found = read_npy(path), wanted = Tensor::of(expected, shape);
    CHECK(found.type == wanted.type);
    CHECK(found.shape == wanted.shape);
    CHECK(found.bytes == wanted.bytes);
}

struct Arrays {
    std::vector<std::uint8_t> codes, scales;
    std::vector<float> outer;
    OuterScale kind;

    Arrays(int rows, OuterScale kind)
        : codes(rows * code_bytes_of(kK)),
          scales(rows * blocks_of(kK)),
          outer(kind == OuterScale::row ? rows : 1),
          kind(kind) {}
    Nvfp4 view() { return {codes.data(), scales.data(), outer.data(), kind}; }
};

}  // namespace

TEST_CASE("op writes the reference's bits", "[op]") {
    TemporaryFolder folder;
    const std::vector<float> x = random_values(kM * kK, 1), w = random_values(kN * kK, 2);
    const std::string x_path = folder.file("x.npy"), w_path = folder.file("w.npy"), out = folder.file("out");
    write_npy(x_path, Tensor::of(x, {kM, kK}));
    write_npy(w_path, Tensor::of(w, {kN, kK}));
    const int x_rows[] = {0, kM}, w_rows[] = {0, kN};
    const Groups x_groups{x_rows, 1}, w_groups{w_rows, 1};
    std::vector<float> y(kM * kN);

    Arrays weights(kN, OuterScale::group);
    reference::quantize_nvfp4(w.data(), w_groups, kN, kK, weights.view());
    run({"quantize_nvfp4", w_path, "--outer", "matrix", "--out", folder.file("w")});
    same_bytes(folder.file("w/outer.npy"), weights.outer, {1});

    for (const OuterScale kind : {OuterScale::row, OuterScale::group}) {
        const std::string outer = kind == OuterScale::row ? "row" : "matrix";
        Arrays main(kM, kind), residual(kM, kind);
        reference::quantize_nvfp4(x.data(), x_groups, kM, kK, main.view());
        run({"quantize_nvfp4", x_path, "--outer", outer, "--out", out});
        same_bytes(out + "/codes.npy", main.codes, {kM, 32});
        same_bytes(out + "/scales.npy", main.scales, {kM, 4});
        same_bytes(out + "/outer.npy", main.outer, {std::int64_t(main.outer.size())});

        std::vector<float> back(kM * kK);
        reference::dequantize_nvfp4(main.view(), x_groups, kM, kK, true, back.data());
        run({"dequantize_nvfp4", out + "/codes.npy", out + "/scales.npy", out + "/outer.npy", "--columns", "50",
             "--out", out});
        same_bytes(out + "/x.npy", back, {kM, kK});

        reference::gemm_w4a4(main.view(), weights.view(), x_groups, kM, kN, kK, y.data());
        run({"gemm_w4a4", x_path, w_path, "--outer", outer, "--out", out});
        same_bytes(out + "/y.npy", y, {kM, kN});

        reference::gemm_w4a4_tensor_core(main.view(), weights.view(), x_groups, kM, kN, kK, y.data());
        run({"gemm_w4a4_tensor_core", x_path, w_path, "--outer", outer, "--out", out});
        same_bytes(out + "/y.npy", y, {kM, kN});

        for (const auto& [name, selection] :
             {std::pair("batch", ResidualSelection::batch), std::pair("token", ResidualSelection::token)}) {
            reference::quantize_nvfp4_residual(x.data(), main.view(), x_groups, kM, kK, 0.25f, selection,
                                               residual.view());
            reference::gemm_w4a4_residual(main.view(), residual.view(), weights.view(), x_groups, kM, kN, kK, y.data());
            run({"quantize_nvfp4_residual", x_path, "--outer", outer, "--ratio", "0.25", "--select", name, "--out",
                 out});
            same_bytes(out + "/residual_codes.npy", residual.codes, {kM, 32});
            same_bytes(out + "/residual_scales.npy", residual.scales, {kM, 4});
            run({"gemm_w4a4_residual", x_path, w_path, "--outer", outer, "--ratio", "0.25", "--select", name, "--out",
                 folder.file("plain")});
            same_bytes(folder.file("plain/y.npy"), y, {kM, kN});
            run({"gemm_w4a4_residual", "--packed", out + "/codes.npy", out + "/scales.npy", out + "/outer.npy",
                 out + "/residual_codes.npy", out + "/residual_scales.npy", folder.file("w/codes.npy"),
                 folder.file("w/scales.npy"), folder.file("w/outer.npy"), "--out", folder.file("packed")});
            same_bytes(folder.file("packed/y.npy"), y, {kM, kN});
        }
    }
}

TEST_CASE("op rounds the operands of a BF16 GEMM, plain and as a tensor core", "[op]") {
    TemporaryFolder folder;
    std::vector<float> x = random_values(kM * kK, 3), w = random_values(kN * kK, 4), y(kM * kN);
    write_npy(folder.file("x.npy"), Tensor::of(x, {kM, kK}));
    write_npy(folder.file("w.npy"), Tensor::of(w, {kN, kK}));
    for (float& value : x) value = bf16_round(value);
    for (float& value : w) value = bf16_round(value);
    const int rows[] = {0, kM};
    reference::gemm_bf16(x.data(), w.data(), nullptr, {rows, 1}, kM, kN, kK, y.data());
    run({"gemm_bf16", folder.file("x.npy"), folder.file("w.npy"), "--out", folder.file("out")});
    same_bytes(folder.file("out/y.npy"), y, {kM, kN});
    reference::gemm_bf16_tensor_core(x.data(), w.data(), nullptr, {rows, 1}, kM, kN, kK, y.data());
    run({"gemm_bf16_tensor_core", folder.file("x.npy"), folder.file("w.npy"), "--out", folder.file("out")});
    same_bytes(folder.file("out/y.npy"), y, {kM, kN});
}
