// Every rung of both ladders against reference/, bit for bit.
#include "kernels/kernels.hpp"
#include "kernels/ladder/ladder.hpp"
#include "reference/check.hpp"
#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;
using namespace quads::kernels;

namespace {

// Codes and scales are random bytes: every block has a scale of its own, so a swapped block shows.
struct Packed {
    Packed(Values& values, int rows, int K, int outers)
        : codes(values.bytes(std::size_t(rows) * code_bytes_of(K), 0, 255)),
          scales(values.bytes(std::size_t(rows) * blocks_of(K), 0, 0x7E)),
          outer(values.floats(outers)) {}

    Nvfp4 in(Arrays& a, OuterScale scale) const { return {a.input(codes), a.input(scales), a.input(outer), scale}; }

    std::vector<std::uint8_t> codes, scales;
    std::vector<float> outer;
};

// Weights in fragment order; the arrays are filled with 0xFF first.
Nvfp4 prepacked(Arrays& a, Nvfp4 rows, int E, int N, int K) {
    const std::vector<std::uint8_t> codes(ladder::prepacked_code_bytes(E, N, K), 0xFF);
    const std::vector<std::uint8_t> scales(ladder::prepacked_scale_bytes(E, N, K), 0xFF);
    const Nvfp4 packed{a.input(codes), a.input(scales), rows.outer, OuterScale::group};
    ladder::prepack_weights(rows, E, N, K, packed);
    float ignored;
    a.op.to_host(&ignored, rows.outer, sizeof ignored);  // throws what went wrong so far
    return packed;
}

// The weights in the order that the rung expects.
Nvfp4 weights_for(const ladder::GemmRung& rung, Arrays& a, const Packed& w, int E, int N, int K) {
    const Nvfp4 rows = w.in(a, OuterScale::group);
    return rung.weights == ladder::PackedOrder::rows ? rows : prepacked(a, rows, E, N, K);
}

// The rungs that this GPU can run: one made for another says so, see the last test.
std::vector<ladder::GemmRung> rungs_here() {
    std::vector<ladder::GemmRung> rungs;
    for (const ladder::GemmRung& rung : ladder::kGemmRungs) {
        try {
            rung.run({}, nullptr, {}, {nullptr, 1}, 0, 0, 16, nullptr);
            rungs.push_back(rung);
        } catch (const Error& error) {
            WARN(rung.name << " is skipped: " << error.what());
        }
    }
    return rungs;
}

// The split GEMMs: kernels/gemm_w4a4.cu and the decode rung against the plain loops.
void check_split(Values& values, const std::vector<int>& offsets, int N, int K, int splits) {
    const int E = static_cast<int>(offsets.size()) - 1, M = offsets.back();
    const OuterScale scale = values.integer(0, 1) == 0 ? OuterScale::row : OuterScale::group;
    const Packed x(values, M, K, scale == OuterScale::row ? M : E), residual(values, M, K, 1), w(values, E * N, K, E);
    check_same_bits(text("splits ", splits, " M ", M, " N ", N, " K ", K, " E ", E), [&](Arrays& a) {
        const Groups groups = a.groups(offsets);
        const Nvfp4 x_in = x.in(a, scale), residual_in = residual.in(a, scale), w_in = w.in(a, OuterScale::group);
        float *y[2], *y_residual[2];  // of kernels/gemm_w4a4.cu, of the decode rung
        for (int i = 0; i < 2; ++i) {
            y[i] = a.output<float>(std::size_t(M) * N);
            y_residual[i] = a.output<float>(std::size_t(M) * N);
        }
        if (&a.op == &cpu_operations()) {
            for (int i = 0; i < 2; ++i) {
                reference::gemm_w4a4_split(x_in, w_in, groups, M, N, K, splits, y[i]);
                reference::gemm_w4a4_residual_split(x_in, residual_in, w_in, groups, M, N, K, splits, y_residual[i]);
            }
        } else {
            gemm_w4a4_split(x_in, w_in, groups, M, N, K, splits, y[0]);
            gemm_w4a4_residual_split(x_in, residual_in, w_in, groups, M, N, K, splits, y_residual[0]);
            const Nvfp4 packed = prepacked(a, w_in, E, N, K);
            ladder::gemm_w4a4_5_decode_split(x_in, nullptr, packed, groups, M, N, K, splits, y[1]);
            ladder::gemm_w4a4_5_decode_split(x_in, &residual_in, packed, groups, M, N, K, splits, y_residual[1]);
        }
    });
}

void check_rung(const ladder::GemmRung& rung, Values& values, const std::vector<int>& offsets, int N, int K) {
    const int E = static_cast<int>(offsets.size()) - 1, M = offsets.back();
    const OuterScale scale = values.integer(0, 1) == 0 ? OuterScale::row : OuterScale::group;
    const Packed x(values, M, K, scale == OuterScale::row ? M : E), residual(values, M, K, 1), w(values, E * N, K, E);
    check_same_bits(text(rung.name, " M ", M, " N ", N, " K ", K, " E ", E), [&](Arrays& a) {
        const Groups groups = a.groups(offsets);
        const Nvfp4 x_in = x.in(a, scale), residual_in = residual.in(a, scale);
        float* y = a.output<float>(std::size_t(M) * N);
        float* y_residual = a.output<float>(std::size_t(M) * N);
        if (&a.op == &cpu_operations()) {
            const Nvfp4 w_in = w.in(a, OuterScale::group);
            a.op.gemm_w4a4(x_in, w_in, groups, M, N, K, y);
            a.op.gemm_w4a4_residual(x_in, residual_in, w_in, groups, M, N, K, y_residual);
        } else {
            const Nvfp4 w_in = weights_for(rung, a, w, E, N, K);
            rung.run(x_in, nullptr, w_in, groups, M, N, K, y);
            rung.run(x_in, &residual_in, w_in, groups, M, N, K, y_residual);
        }
    });
}

void check_quantize(const std::vector<float>& x, const std::vector<int>& offsets, int M, int K) {
    const int E = static_cast<int>(offsets.size()) - 1;
    const auto packed = [&](Arrays& a, OuterScale scale) -> Nvfp4 {
        return {a.output<std::uint8_t>(std::size_t(M) * code_bytes_of(K)),
                a.output<std::uint8_t>(std::size_t(M) * blocks_of(K)),
                a.output<float>(scale == OuterScale::row ? M : E), scale};
    };
    for (const ladder::QuantizeRung& rung : ladder::kQuantizeRungs) {
        for (OuterScale scale : {OuterScale::row, OuterScale::group}) {
            check_same_bits(text("quantize ", rung.name, " M ", M, " K ", K, " E ", E), [&](Arrays& a) {
                const auto run = &a.op == &cpu_operations() ? reference::quantize_nvfp4 : rung.run;
                run(a.input(x), a.groups(offsets), M, K, packed(a, scale));
            });
        }
    }
    // Among them one channel, and all but one.
    for (float ratio : {0.0f, 1.0f / K, 0.01f, 0.5f, static_cast<float>(K - 1) / K, 1.0f}) {
        check_same_bits(text("quantize 4_residual M ", M, " K ", K, " ratio ", ratio), [&](Arrays& a) {
            const float* input = a.input(x);
            const Groups groups = a.groups({0, M});
            const Nvfp4 main = packed(a, OuterScale::row);
            const Nvfp4 residual{a.output<std::uint8_t>(std::size_t(M) * code_bytes_of(K)),
                                 a.output<std::uint8_t>(std::size_t(M) * blocks_of(K)), nullptr, OuterScale::row};
            if (&a.op == &cpu_operations()) {
                a.op.quantize_nvfp4(input, groups, M, K, main);
                a.op.quantize_nvfp4_residual(input, main, groups, M, K, ratio, ResidualSelection::token, residual);
            } else {
                ladder::quantize_nvfp4_4_residual(input, M, K, ratio, main, residual);
            }
        });
    }
}

}  // namespace

TEST_CASE("ladder: every W4A4 rung over sizes", "[gpu][ladder]") {
    Values values(1);
    for (const ladder::GemmRung& rung : rungs_here()) {
        for (int M : {1, 8, 15, 17, 33, 129}) {
            for (int N : {1, 16, 31, 129}) {
                for (int K : {1, 16, 33, 64, 80, 128, 1040}) check_rung(rung, values, {0, M}, N, K);
            }
        }
        for (int M : {2, 9, 20, 64, 127}) check_rung(rung, values, {0, M}, 47, 16 * 257);
        check_rung(rung, values, {0, 16}, 4500, 288);      // more row tiles than resident blocks
        check_rung(rung, values, {0, 70}, 33, 16 * 1500);  // activations that do not fit into shared memory at once
    }
}

TEST_CASE("ladder: every W4A4 rung over expert counts, with empty experts and one that takes all", "[gpu][ladder]") {
    Values values(2);
    for (const ladder::GemmRung& rung : rungs_here()) {
        for (int E : {1, 3, 8, 40, 60}) {
            for (int M : {1, 47, 300}) check_rung(rung, values, values.offsets(M, E), 48, 96);
        }
        check_rung(rung, values, values.offsets(200, 64), 1030, 768);
        check_rung(rung, values, {0, 0, 0, 129, 129}, 33, 80);
        check_rung(rung, values, {0, 0}, 16, 16);
    }
}

TEST_CASE("ladder: the sum over K in ranges, small enough for compute-sanitizer", "[gpu][ladder][split][small]") {
    Values values(5);
    for (int splits : {1, 2, 3, 8, 16}) {
        for (int M : {1, 9, 17, 40}) {
            for (int K : {16, 200, 1100}) check_split(values, {0, M}, 40, K, splits);
        }
        check_split(values, {0, 3, 3, 20, 21}, 70, 300, splits);
    }
}

TEST_CASE("ladder: the sum over K in ranges, over sizes, experts and splits", "[gpu][ladder][split]") {
    Values values(4);
    for (int M : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64, 127, 128, 129}) {
        for (int blocks : {1, 4, 5, 8, 257}) {
            const int N = values.integer(1, 130), K = 16 * blocks - values.integer(0, 15);
            check_split(values, {0, M}, N, K, values.integer(1, 16));
        }
    }
    for (int splits = 1; splits <= 16; ++splits) {
        for (int M : {3, 12, 32, 70}) check_split(values, {0, M}, 100, 4096 + 80, splits);
        check_split(values, values.offsets(100, 12), 200, 768, splits);
    }
    for (int splits : {2, 4, 8, 16}) {
        for (int M : {3, 8, 16}) check_split(values, {0, M}, 4500, 1040, splits);  // more row tiles than resident warps
        check_split(values, {0, 40}, 33, 16 * 4000, splits);  // activations that do not fit into shared memory at once
        for (int E : {1, 3, 8, 40, 60}) {
            for (int M : {1, 47, 300}) check_split(values, values.offsets(M, E), 48, 400, splits);
        }
        check_split(values, {0, 0, 0, 129, 129}, 33, 1000, splits);
        check_split(values, {0, 0}, 16, 16, splits);
    }
    // Two row tiles a warp, and more tokens in a group than in an item.
    for (int M : {200, 500, 700}) check_split(values, values.offsets(M, 64), 1030, 144, 4);
}

TEST_CASE("ladder: splits that the decode rung cannot have are refused", "[gpu][ladder][split]") {
    const Nvfp4 none{nullptr, nullptr, nullptr, OuterScale::group};
    for (int splits : {-1, 0, 17}) {
        REQUIRE_THROWS_AS(
            ladder::gemm_w4a4_5_decode_split(none, nullptr, none, {nullptr, 1}, 1, 8, 64, splits, nullptr), Error);
    }
}

TEST_CASE("ladder: every quantiser rung over sizes, groups and rare values", "[gpu][ladder]") {
    Values values(3);
    for (int M : {1, 17, 33}) {
        for (int K : {1, 4, 15, 16, 17, 20, 33, 64, 80, 129, 1024, 1028, 3076, 16 * 257, 8192, 8208}) {
            check_quantize(values.floats(std::size_t(M) * K), values.offsets(M, 3), M, K);
        }
    }
    for (int spread : {0, 10, 60}) check_quantize(values.floats(64 * 96, spread), values.offsets(64, 8), 64, 96);
    const int M = 4, K = 1040;
    std::vector<float> zeros(M * K), tiny(M * K, 1e-45f), huge(M * K, 3.4e38f), equal(M * K, -1.5f), ties(M * K);
    for (std::size_t i = 0; i < ties.size(); ++i) ties[i] = static_cast<float>(i % 25) * 0.25f * (i % 2 ? -1.0f : 1.0f);
    std::vector<float> huge_ties = ties, few(M * K);  // huge: the inverse scale times 2^-6 is subnormal, so inexact
    for (float& value : huge_ties) value *= 1.3f * 0x1p124f;
    for (float& value : few) value = values.integer(0, 1) == 0 ? 1.1f : 1.3f;  // two residuals, so many are equal
    for (const auto& x : {zeros, tiny, huge, huge_ties, equal, few, ties}) check_quantize(x, {0, 1, 1, M}, M, K);
}

TEST_CASE("ladder: the native rung refuses a GPU without the instruction", "[gpu][ladder]") {
    const Nvfp4 none{nullptr, nullptr, nullptr, OuterScale::group};
    try {
        ladder::gemm_w4a4_7_native_sm120a(none, nullptr, none, {nullptr, 1}, 16, 8, 64, nullptr);
        SUCCEED("this GPU has it");
    } catch (const Error& error) {
        CHECK(std::string(error.what()).find("compute capability 12.0") != std::string::npos);
    }
}
