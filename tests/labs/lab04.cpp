#include "notebooks/labs/adapter.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

namespace {

using Codes = std::vector<std::uint8_t>;

struct Packed {
    Codes codes, scales;
    Floats outer;
    Packed(int rows, int K, int outers)
        : codes(rows * quads::code_bytes_of(K), 0xAA), scales(rows * quads::blocks_of(K), 0xAA), outer(outers) {}
};

// x, its main pass by the reference, and its second pass by the lab.
struct Compensated {
    int M, K;
    Floats x;
    Packed main, residual;

    Compensated(const Floats& values, int M, int K, float ratio)
        : M(M), K(K), x(values), main(M, K, M), residual(M, K, M) {
        quads::reference::quantize_nvfp4(x.data(), lab::Dense(M), M, K,
                                         lab::rows(main.codes.data(), main.scales.data(), main.outer.data()));
        lab::quantize_residual(x.data(), main.codes.data(), main.scales.data(), main.outer.data(), M, K, ratio,
                               residual.codes.data(), residual.scales.data());
    }

    Floats value(const Packed& pass) const {
        Floats y(M * K);
        quads::reference::dequantize_nvfp4(lab::rows(pass.codes.data(), pass.scales.data(), main.outer.data()),
                                           lab::Dense(M), M, K, true, y.data());
        return y;
    }
};

}  // namespace

TEST_CASE("1. ratio 0 keeps no channel: everything is 0", "[lab04]") {
    const Compensated c(random_floats(3 * 33, 1), 3, 33, 0.0f);
    REQUIRE_SAME_BITS(c.residual.codes, Codes(c.residual.codes.size(), 0));
    REQUIRE_SAME_BITS(c.residual.scales, Codes(c.residual.scales.size(), 0));
}

TEST_CASE("2. ratio 1 makes the error of every row smaller", "[lab04]") {
    const Compensated c(random_floats(8 * 64, 2), 8, 64, 1.0f);
    const Floats main = c.value(c.main), second = c.value(c.residual);
    for (int m = 0; m < 8; ++m) {
        double before = 0, after = 0;
        for (int k = 0; k < 64; ++k) {
            const double error = double{c.x[m * 64 + k]} - main[m * 64 + k];
            before += error * error;
            after += (error - second[m * 64 + k]) * (error - second[m * 64 + k]);
        }
        INFO("row " << m);
        REQUIRE(after < before / 10);
    }
}

TEST_CASE("3. the channels that lost most over all rows are kept", "[lab04]") {
    // Amax 2688 gives scale 448, so values below 112 have code 0 and are lost whole. Channel 2 lost 80 twice, channel 3
    // 110 once, channel 1 90 once: norms 113, 110 and 90.
    Floats x(2 * 16, 0.0f);
    x[0] = x[16] = 2688.0f;
    x[2] = x[18] = 80.0f;
    x[19] = 110.0f;
    x[1] = 90.0f;
    const Compensated c(x, 2, 16, 0.1f);  // ceil(0.1 * 16) = 2 channels
    const Floats kept = c.value(c.residual);
    for (int k = 0; k < 16; ++k) {
        INFO("channel " << k);
        REQUIRE((kept[k] != 0 || kept[16 + k] != 0) == (k == 2 || k == 3));
    }
}

TEST_CASE("4. equal norms: the lower channel is kept", "[lab04]") {
    Floats x(16, 0.0f);
    x[0] = 2688.0f;
    x[5] = x[9] = x[12] = 100.0f;
    const Floats kept = [&] {
        const Compensated c(x, 1, 16, 0.1f);
        return c.value(c.residual);
    }();
    REQUIRE(kept[5] != 0.0f);
    REQUIRE(kept[9] != 0.0f);
    REQUIRE(kept[12] == 0.0f);
}

TEST_CASE("5. the second pass is the reference's", "[lab04]") {
    for (const int K : {1, 16, 17, 33, 129}) {
        for (const float ratio : {0.1f, 0.5f, 1.0f}) {
            const Compensated c(random_floats(5 * K, K), 5, K, ratio);
            Packed expected(5, K, 5);
            quads::reference::quantize_nvfp4_residual(
                c.x.data(), lab::rows(c.main.codes.data(), c.main.scales.data(), c.main.outer.data()), lab::Dense(5), 5,
                K, ratio, quads::ResidualSelection::batch,
                lab::rows(expected.codes.data(), expected.scales.data(), nullptr));
            INFO("K = " << K << ", ratio " << ratio);
            REQUIRE_SAME_BITS(c.residual.scales, expected.scales);
            REQUIRE_SAME_BITS(c.residual.codes, expected.codes);
        }
    }
}

TEST_CASE("6. the compensated GEMM is a W4A4 GEMM over an interleaved axis", "[lab04]") {
    const int M = 3, N = 5, K = 64, B = 4;
    const Compensated c(random_floats(M * K, 7), M, K, 0.5f);
    const Floats weights = random_floats(N * K, 8);
    Packed w(N, K, 1), x2(M, 2 * K, M), w2(N, 2 * K, 1);
    quads::reference::quantize_nvfp4(weights.data(), lab::Dense(N), N, K,
                                     lab::matrix(w.codes.data(), w.scales.data(), w.outer.data()));
    const auto interleave = [&](const Packed& first, const Packed& second, int rows, Packed& both) {
        for (int i = 0; i < rows * B; ++i) {
            std::copy_n(&first.codes[8 * i], 8, &both.codes[16 * i]);
            std::copy_n(&second.codes[8 * i], 8, &both.codes[16 * i + 8]);
            both.scales[2 * i] = first.scales[i];
            both.scales[2 * i + 1] = second.scales[i];
        }
        both.outer = first.outer;
    };
    interleave(c.main, c.residual, M, x2);
    interleave(w, w, N, w2);
    Floats expected(M * N), found(M * N, NAN);
    quads::reference::gemm_w4a4(lab::rows(x2.codes.data(), x2.scales.data(), x2.outer.data()),
                                lab::matrix(w2.codes.data(), w2.scales.data(), w2.outer.data()), lab::Dense(M), M, N,
                                2 * K, expected.data());
    lab::gemm_w4a4_residual(c.main.codes.data(), c.main.scales.data(), c.main.outer.data(), c.residual.codes.data(),
                            c.residual.scales.data(), w.codes.data(), w.scales.data(), w.outer.data(), M, N, K,
                            found.data());
    REQUIRE_SAME_BITS(found, expected);
}
