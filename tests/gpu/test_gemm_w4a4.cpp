#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;

namespace {

// Codes and scales are random bytes, padding included: every block has a scale of its own, so a swapped one shows.
struct Packed {
    Packed(Values& values, int rows, int K, int outers)
        : codes(values.bytes(std::size_t(rows) * code_bytes_of(K), 0, 255)),
          scales(values.bytes(std::size_t(rows) * blocks_of(K), 0, 0x7E)), outer(values.floats(outers)) {}

    Nvfp4 in(Arrays& a, OuterScale scale) const { return {a.input(codes), a.input(scales), a.input(outer), scale}; }

    std::vector<std::uint8_t> codes, scales;
    std::vector<float> outer;
};

void check_gemm(Values& values, const std::vector<int>& offsets, int N, int K) {
    const int E = static_cast<int>(offsets.size()) - 1, M = offsets.back();
    for (OuterScale scale : {OuterScale::row, OuterScale::group}) {
        const Packed x(values, M, K, scale == OuterScale::row ? M : E), w(values, E * N, K, E);
        const Packed residual(values, M, K, 1);
        check_same_bits(text("w4a4 M ", M, " N ", N, " K ", K, " E ", E), [&](Arrays& a) {
            const Groups groups = a.groups(offsets);
            const Nvfp4 x_in = x.in(a, scale), w_in = w.in(a, OuterScale::group);
            a.op.gemm_w4a4(x_in, w_in, groups, M, N, K, a.output<float>(std::size_t(M) * N));
            a.op.gemm_w4a4_residual(x_in, residual.in(a, scale), w_in, groups, M, N, K,
                                    a.output<float>(std::size_t(M) * N));
        });
    }
}

}  // namespace

TEST_CASE("cuda: W4A4 GEMM over sizes", "[gpu]") {
    Values values(1);
    for (int M : {1, 15, 16, 17, 31, 32, 33, 127, 128, 129}) {
        for (int N : {1, 16, 33, 129}) {
            for (int K : {1, 16, 33, 64, 80, 128}) check_gemm(values, {0, M}, N, K);
        }
    }
    check_gemm(values, {0, 33}, 31, 16 * 257);
}

TEST_CASE("cuda: grouped W4A4 GEMM over expert counts, with empty experts and one that takes all", "[gpu]") {
    Values values(2);
    for (int E : {1, 3, 8, 40, 60}) {
        for (int M : {1, 47, 300}) check_gemm(values, values.offsets(M, E), 48, 64);
    }
    check_gemm(values, {0, 0, 0, 129, 129}, 33, 80);
    check_gemm(values, {0, 0}, 16, 16);
}
