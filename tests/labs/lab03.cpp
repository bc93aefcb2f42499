#include <random>

#include "notebooks/labs/adapter.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

namespace {

struct Packed {
    std::vector<std::uint8_t> codes, scales;
    Floats outer;
};

// Any codes under any scales; padding is 0.
Packed any_bytes(int rows, int K, int outer, std::uint32_t seed) {
    std::mt19937 words(seed);
    Packed p{std::vector<std::uint8_t>(rows * quads::code_bytes_of(K)),
             std::vector<std::uint8_t>(rows * quads::blocks_of(K)), random_floats(outer, seed)};
    for (int m = 0; m < rows; ++m) {
        for (int k = 0; k < K; ++k) {
            p.codes[m * quads::code_bytes_of(K) + k / 2] |= static_cast<std::uint8_t>((words() & 15) << (4 * (k & 1)));
        }
    }
    for (std::uint8_t& scale : p.scales) scale = static_cast<std::uint8_t>(words() % 0x7F);
    return p;
}

Floats product(const Packed& x, const Packed& w, int M, int N, int K) {
    Floats y(M * N, NAN);
    lab::gemm_w4a4(x.codes.data(), x.scales.data(), x.outer.data(), w.codes.data(), w.scales.data(), w.outer.data(), M,
                   N, K, y.data());
    return y;
}

}  // namespace

TEST_CASE("1. a block by hand", "[lab03]") {
    // x: 1 at column 0, 6 at column 1, scale 2; w: -3 at column 0, 0.5 at column 1, scale 0.5. (-3 + 3) and (-3 + 6).
    const std::uint8_t x[8] = {0x72}, w[8] = {0x1D}, w_larger[8] = {0x2D};
    REQUIRE_SAME_BITS(Floats{lab::block_term(x, 0x40, w, 0x30)}, Floats{0.0f});
    REQUIRE_SAME_BITS(Floats{lab::block_term(x, 0x40, w_larger, 0x30)}, Floats{3.0f});
}

TEST_CASE("2. a block's term is exact for all pairs of scales", "[lab03]") {
    const Packed codes = any_bytes(2, 16, 1, 1);
    double dot = 0;
    for (int i = 0; i < 16; ++i) {
        dot += double{quads::e2m1_decode(quads::code_at(codes.codes.data(), i))} *
               quads::e2m1_decode(quads::code_at(codes.codes.data() + 8, i));
    }
    Floats found, expected;
    for (int a = 0; a < 0x7F; ++a) {
        for (int b = 0; b < 0x7F; ++b) {
            const auto sx = static_cast<std::uint8_t>(a), sw = static_cast<std::uint8_t>(b);
            found.push_back(lab::block_term(codes.codes.data(), sx, codes.codes.data() + 8, sw));
            expected.push_back(static_cast<float>(dot * quads::e4m3_decode(sx) * quads::e4m3_decode(sw)));
        }
    }
    REQUIRE_SAME_BITS(found, expected);
}

TEST_CASE("3. each block has its own scales, each row its outer scale", "[lab03]") {
    Packed x{std::vector<std::uint8_t>(16), {0x38, 0x40}, {3.0f}},
        w{std::vector<std::uint8_t>(16), {0x38, 0x48}, {0.5f}};
    x.codes[0] = w.codes[0] = 2;  // 1 * 1 under scales 1 and 1
    x.codes[8] = w.codes[8] = 2;  // 1 * 1 under scales 2 and 4
    REQUIRE_SAME_BITS(product(x, w, 1, 1, 32), Floats{9.0f * 1.5f});
}

TEST_CASE("4. blocks are added in ascending order, each sum rounded", "[lab03]") {
    // 2^24 + 1 rounds to 2^24, and -2^24 then leaves 0; from the other end the 1 would survive.
    Packed x{std::vector<std::uint8_t>(24), {0x78, 0x38, 0x78}, {1.0f}}, w = x;
    const auto block = [](Packed& p, int b, std::initializer_list<int> codes) {
        int k = 0;
        for (const int code : codes) {
            p.codes[8 * b + k / 2] |= static_cast<std::uint8_t>(code << (4 * (k & 1)));
            ++k;
        }
    };
    // 256 * 256 * (16 * 16) = 2^24: sixteen products of 4 * 4.
    block(x, 0, {6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6});
    block(w, 0, {6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6});
    block(x, 1, {2});
    block(w, 1, {2});
    block(x, 2, {14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14});
    block(w, 2, {6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6});
    REQUIRE_SAME_BITS(product(x, w, 1, 1, 48), Floats{0.0f});
}

TEST_CASE("5. the outer scales are multiplied with each other first, and once", "[lab03]") {
    Packed x{{2, 0, 0, 0, 0, 0, 0, 0}, {0x3D}, {1.1f}}, w{{3, 0, 0, 0, 0, 0, 0, 0}, {0x3B}, {1.3f}};
    const float acc = 1.0f * 1.5f * (1.625f * 1.375f), factor = 1.1f * 1.3f;
    REQUIRE_SAME_BITS(product(x, w, 1, 1, 16), Floats{acc * factor});
}

TEST_CASE("6. all sizes, as the reference", "[lab03]") {
    const int sizes[][3] = {{1, 1, 1}, {1, 17, 16}, {15, 2, 17}, {17, 33, 15}, {31, 16, 33}, {5, 7, 129}, {2, 3, 1024}};
    for (const auto& [M, N, K] : sizes) {
        Packed x = any_bytes(M, K, M, M + K), w = any_bytes(N, K, 1, N + K);
        Floats expected(M * N);
        quads::reference::gemm_w4a4(lab::rows(x.codes.data(), x.scales.data(), x.outer.data()),
                                    lab::matrix(w.codes.data(), w.scales.data(), w.outer.data()), lab::Dense(M), M, N,
                                    K, expected.data());
        INFO("M, N, K = " << M << ", " << N << ", " << K);
        REQUIRE_SAME_BITS(product(x, w, M, N, K), expected);
    }
}
