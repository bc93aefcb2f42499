#include "tests/gpu/same_bits.hpp"
#include "tests/refusal.hpp"

using namespace quads;
using namespace quads::gpu_test;

namespace {

constexpr OuterScale kScales[] = {OuterScale::row, OuterScale::group};
constexpr ResidualSelection kSelections[] = {ResidualSelection::batch, ResidualSelection::token,
                                             ResidualSelection::random};

Nvfp4 packed_output(Arrays& a, int M, int K, int E, OuterScale scale) {
    const std::size_t rows = M;
    return {a.output<std::uint8_t>(rows * code_bytes_of(K)), a.output<std::uint8_t>(rows * blocks_of(K)),
            a.output<float>(scale == OuterScale::row ? M : E), scale};
}

void check_residual(const std::vector<float>& x, const std::vector<int>& offsets, int M, int K, OuterScale scale,
                    float ratio, ResidualSelection selection) {
    const int E = static_cast<int>(offsets.size()) - 1, outers = scale == OuterScale::row ? M : E;
    const std::vector<float> unused(outers);
    const std::string what = text("residual M ", M, " K ", K, " E ", E, " ratio ", ratio, " by ", int(selection));
    check_same_bits(what, [&](Arrays& a) {
        const float* input = a.input(x);
        const Groups groups = a.groups(offsets);
        const Nvfp4 main = packed_output(a, M, K, E, scale);
        a.op.quantize_nvfp4(input, groups, M, K, main);
        const Nvfp4 residual = packed_output(a, M, K, E, scale);
        a.op.to_device(residual.outer, unused.data(), outers * sizeof(float));
        a.op.quantize_nvfp4_residual(input, main, groups, M, K, ratio, selection, residual);
    });
}

void check_quantisers(const std::vector<float>& x, const std::vector<int>& offsets, int M, int K) {
    const int E = static_cast<int>(offsets.size()) - 1;
    for (OuterScale scale : kScales) {
        check_same_bits(text("quantize M ", M, " K ", K, " E ", E), [&](Arrays& a) {
            const Groups groups = a.groups(offsets);
            const Nvfp4 q = packed_output(a, M, K, E, scale);
            a.op.quantize_nvfp4(a.input(x), groups, M, K, q);
            for (bool with_outer : {false, true}) {
                a.op.dequantize_nvfp4(q, groups, M, K, with_outer, a.output<float>(std::size_t(M) * K));
            }
        });
        for (ResidualSelection selection : kSelections) {
            for (float ratio : {0.0f, 0.3f, 0.5f, 1.0f}) check_residual(x, offsets, M, K, scale, ratio, selection);
        }
    }
}

// The error of quantising x, "" for none.
std::string message_of(const Operations& op, const std::vector<float>& x, int M, int K, OuterScale scale) {
    return refusal([&] {
        Arrays a(op, 0);
        a.op.quantize_nvfp4(a.input(x), a.groups({0, M}), M, K, packed_output(a, M, K, 1, scale));
        a.results();
    });
}

}  // namespace

TEST_CASE("cuda: NVFP4 quantise, dequantise and residual over sizes and groups", "[gpu]") {
    Values values(1);
    for (int M : {1, 2, 16, 33}) {
        for (int K : {1, 15, 16, 17, 31, 33, 64, 80, 127, 129}) {
            check_quantisers(values.floats(std::size_t(M) * K), values.offsets(M, 3), M, K);
        }
    }
    for (int E : {1, 8, 40, 60}) check_quantisers(values.floats(129 * 64), values.offsets(129, E), 129, 64);
    check_quantisers(values.floats(7 * 16 * 257), {0, 7}, 7, 16 * 257);
    check_quantisers(values.floats(1000 * 32), {0, 0, 1000, 1000}, 1000, 32);
}

TEST_CASE("cuda: NVFP4 of rare values", "[gpu]") {
    Values values(2);
    for (int spread : {0, 10, 60}) check_quantisers(values.floats(64 * 64, spread), values.offsets(64, 4), 64, 64);

    std::vector<float> zeros(4 * 40), tiny(4 * 40, 1e-45f), huge(4 * 40, 3.4e38f), equal(4 * 40, -1.5f), ties(4 * 40);
    for (std::size_t i = 0; i < ties.size(); ++i) ties[i] = static_cast<float>(i % 25) * 0.25f * (i % 2 ? -1.0f : 1.0f);
    for (const auto& x : {zeros, tiny, huge, equal, ties}) check_quantisers(x, {0, 1, 1, 4}, 4, 40);
}

TEST_CASE("cuda: code flips", "[gpu]") {
    Values values(3);
    for (int K : {1, 16, 33, 64, 129}) {
        const int M = 37;
        const std::vector<float> x = values.floats(M * K);
        std::vector<float> y = x;
        for (float& value : y) value *= 1.0f + 0.02f * (values.uniform() - 0.5f);
        check_same_bits(text("flips K ", K), [&](Arrays& a) {
            a.op.count_code_flips(a.input(x), a.input(y), M, K, a.output<int>(M));
        });
    }
}

TEST_CASE("cuda: NaN and Inf are reported as on the CPU, and the next call is clean", "[gpu]") {
    Values values(4);
    const int M = 20, K = 50;
    const std::vector<float> clean = values.floats(M * K);
    for (float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
        for (OuterScale scale : kScales) {
            std::vector<float> x = clean;
            x[7 * K + 31] = bad;
            x[7 * K + 49] = -bad;
            x[19 * K] = bad;
            const std::string expected = message_of(cpu_operations(), x, M, K, scale);
            CHECK(expected.find("row 7, column 31") != std::string::npos);
            CHECK(message_of(cuda_operations(), x, M, K, scale) == expected);
            CHECK(message_of(cuda_operations(), clean, M, K, scale) == "");
        }
    }
}
