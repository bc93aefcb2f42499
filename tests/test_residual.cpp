#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/gemm_w4a4.hpp"
#include "reference/nvfp4.hpp"
#include "reference/philox.hpp"
#include "tests/arrays.hpp"
#include "tests/compare.hpp"
#include "tests/packed.hpp"
#include "tests/refusal.hpp"

using namespace quads;

namespace {

constexpr ResidualSelection kSelections[] = {ResidualSelection::batch, ResidualSelection::token,
                                             ResidualSelection::random};

Packed residual_of(const Floats& x, Packed& main, const GroupRows& groups, int K, float ratio,
                   ResidualSelection selection) {
    Packed residual(groups.rows(), K, groups.view().E, main.outer_scale);
    reference::quantize_nvfp4_residual(x.data(), main.view(), groups.view(), groups.rows(), K, ratio, selection,
                                       residual.view());
    return residual;
}

// The first `count` channels in descending order of key, lower channels first among equals.
template <typename Key>
std::vector<bool> largest(const std::vector<Key>& keys, int count) {
    Ints order(keys.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] > keys[b]; });
    std::vector<bool> kept(keys.size(), false);
    for (int i = 0; i < count; ++i) kept[order[i]] = true;
    return kept;
}

// The contract's section 4 by sorting: r, the channels, and the quantiser with the main pass's Se.
Packed literal_residual(const Floats& x, const Packed& main, const GroupRows& groups, int K, int count,
                        ResidualSelection selection) {
    Floats r(x.size());
    for (int m = 0; m < groups.rows(); ++m) {
        for (int k = 0; k < K; ++k) r[m * K + k] = x[m * K + k] - literal::value(main, groups, m, k, K);
    }
    Floats kept = r;
    for (int m = 0; m < groups.rows(); ++m) {
        const int e = groups.group_of(m);
        Floats keys(K, 0.0f);
        std::vector<std::uint32_t> words(K);
        for (int k = 0; k < K; ++k) {
            words[k] = philox4x32_10({{std::uint32_t(m), std::uint32_t(k), 0, 0}}, 0x52414344u, 0).word[0];
            if (selection == ResidualSelection::token) keys[k] = std::fabs(r[m * K + k]);
            if (selection != ResidualSelection::batch) continue;
            for (int row = groups.offsets[e]; row < groups.offsets[e + 1]; ++row) {
                keys[k] = std::fma(r[row * K + k], r[row * K + k], keys[k]);
            }
        }
        const bool random = selection == ResidualSelection::random;
        const std::vector<bool> chosen = random ? largest(words, count) : largest(keys, count);
        for (int k = 0; k < K; ++k) {
            if (!chosen[k]) kept[m * K + k] = 0.0f;
        }
    }
    Packed residual(groups.rows(), K, groups.view().E, main.outer_scale);
    const Floats Se = literal::encode_scales(x, groups, K, main.outer_scale);
    for (int m = 0; m < groups.rows(); ++m) literal::quantize_row(kept, m, K, Se[m], residual);
    return residual;
}

// Blocks of a and b in turn: a tensor of 2K columns with a's outer scales.
Packed interleaved(const Packed& a, const Packed& b, int M, int K) {
    Packed both(M, 32 * blocks_of(K), static_cast<int>(a.outer.size()), a.outer_scale);
    both.outer = a.outer;
    for (std::size_t block = 0; block < a.scales.size(); ++block) {
        both.scales[2 * block] = a.scales[block];
        both.scales[2 * block + 1] = b.scales[block];
        std::copy_n(&a.codes[block * 8], 8, &both.codes[2 * block * 8]);
        std::copy_n(&b.codes[block * 8], 8, &both.codes[(2 * block + 1) * 8]);
    }
    return both;
}

// Relative error of x w^T with compensated activations and the exact values of quantised weights.
double gemm_error(const Floats& x, const Floats& w, int M, int N, int K, float ratio, ResidualSelection selection) {
    const GroupRows rows({M}), outputs({N});
    Packed main = quantized(x, rows, K, OuterScale::row), qw = quantized(w, outputs, K, OuterScale::group);
    Packed residual = residual_of(x, main, rows, K, ratio, selection);
    Floats y(static_cast<std::size_t>(M) * N, NAN);
    reference::gemm_w4a4_residual(main.view(), residual.view(), qw.view(), rows.view(), M, N, K, y.data());
    double error = 0.0, norm = 0.0;
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            double exact = 0.0;
            for (int k = 0; k < K; ++k) exact += double(x[m * K + k]) * literal::value(qw, outputs, n, k, K);
            error += (y[m * N + n] - exact) * (y[m * N + n] - exact);
            norm += exact * exact;
        }
    }
    return std::sqrt(error / norm);
}

// Roughly normal values, without preferred channels.
Floats plain_data(std::size_t n, std::uint32_t seed) {
    const Floats u = random_floats(4 * n, seed);
    Floats x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = u[4 * i] + u[4 * i + 1] + u[4 * i + 2] + u[4 * i + 3];
    return x;
}

}  // namespace

TEST_CASE("quantize_nvfp4_residual: channels by sorting, the main pass's outer scale", "[quantize_nvfp4_residual]") {
    for (const int K : {1, 15, 16, 17, 33, 64}) {
        for (const Ints& rows : {Ints{1}, Ints{0, 9, 0, 4}, Ints{33}, Ints{}}) {
            const GroupRows groups(rows);
            const Floats x = spread_floats(static_cast<std::size_t>(groups.rows()) * K, 40 + K);
            for (const OuterScale kind : {OuterScale::row, OuterScale::group}) {
                Packed main = quantized(x, groups, K, kind);
                for (const ResidualSelection selection : kSelections) {
                    for (const int percent : {0, 10, 50, 99, 100}) {
                        CAPTURE(K, groups.rows(), static_cast<int>(selection), percent);
                        const int count = (percent * K + 99) / 100;
                        const Packed found = residual_of(x, main, groups, K, percent / 100.0f, selection);
                        const Packed expected = literal_residual(x, main, groups, K, count, selection);
                        REQUIRE_SAME_BITS(found.scales, expected.scales);
                        REQUIRE_SAME_BITS(found.codes, expected.codes);
                    }
                }
            }
        }
    }
}

TEST_CASE("quantize_nvfp4_residual: among equal residuals the lower channel wins", "[quantize_nvfp4_residual]") {
    const GroupRows groups({2});
    Floats x(2 * 16, 1.1f);
    x[0] = x[16] = 6.0f;  // a scale at which 1.1 is no code: 15 equal residuals, and none in channel 0
    Packed main = quantized(x, groups, 16, OuterScale::row);
    for (const ResidualSelection selection : {ResidualSelection::batch, ResidualSelection::token}) {
        Packed residual = residual_of(x, main, groups, 16, 4.0f / 16.0f, selection);
        residual.outer = main.outer;
        for (int k = 0; k < 32; ++k) {
            const bool kept = literal::value(residual, groups, k / 16, k % 16, 16) != 0.0f;
            REQUIRE(kept == (k % 16 >= 1 && k % 16 <= 4));
        }
    }
}

TEST_CASE("quantize_nvfp4_residual: the number of channels rounds up, by FP32", "[quantize_nvfp4_residual]") {
    REQUIRE(residual_channels(0.0f, 64) == 0);
    REQUIRE(residual_channels(0.1f, 10) == 1);
    REQUIRE(residual_channels(0.5f, 5) == 3);
    REQUIRE(residual_channels(0.001f, 10) == 1);
    REQUIRE(residual_channels(1.0f, 77) == 77);
}

TEST_CASE("quantize_nvfp4_residual: refuses ratios outside 0 .. 1 and NaN", "[quantize_nvfp4_residual]") {
    const GroupRows groups({2});
    Floats x = random_floats(2 * 16, 1);
    Packed main = quantized(x, groups, 16, OuterScale::row);
    for (const float ratio : {-0.1f, 1.1f, NAN}) {
        REQUIRE(refusal([&] { residual_of(x, main, groups, 16, ratio, ResidualSelection::batch); }) != "");
    }
    x[16 + 5] = NAN;
    REQUIRE(refusal([&] { residual_of(x, main, groups, 16, 0.5f, ResidualSelection::batch); })
                .find("row 1, column 5") != std::string::npos);
}

TEST_CASE("gemm_w4a4_residual: equals one W4A4 GEMM over the interleaved axis of 2K", "[gemm_w4a4_residual]") {
    for (const int K : {1, 16, 33, 96}) {
        for (const ResidualSelection selection : kSelections) {
            const int N = 7;
            const GroupRows groups({5, 0, 12}), outputs({N, N, N});
            const Floats x = spread_floats(17 * K, K), w = spread_floats(3 * N * K, K + 1);
            Packed main = quantized(x, groups, K, OuterScale::row);
            Packed residual = residual_of(x, main, groups, K, 0.5f, selection);
            Packed qw = quantized(w, outputs, K, OuterScale::group);
            Packed x2 = interleaved(main, residual, 17, K), w2 = interleaved(qw, qw, 3 * N, K);
            Floats found(17 * N, NAN), expected(17 * N, NAN);
            reference::gemm_w4a4_residual(main.view(), residual.view(), qw.view(), groups.view(), 17, N, K,
                                          found.data());
            reference::gemm_w4a4(x2.view(), w2.view(), groups.view(), 17, N, 32 * blocks_of(K), expected.data());
            REQUIRE_SAME_MATRIX(found, expected, N);
        }
    }
}

TEST_CASE("gemm_w4a4_residual: a ratio of 0 changes no bit", "[gemm_w4a4_residual]") {
    const GroupRows groups({9}), outputs({6});
    const Floats x = random_floats(9 * 64, 1), w = random_floats(6 * 64, 2);
    Packed main = quantized(x, groups, 64, OuterScale::row), qw = quantized(w, outputs, 64, OuterScale::group);
    Packed none = residual_of(x, main, groups, 64, 0.0f, ResidualSelection::batch);
    Floats plain(9 * 6, NAN), compensated(9 * 6, NAN);
    reference::gemm_w4a4(main.view(), qw.view(), groups.view(), 9, 6, 64, plain.data());
    reference::gemm_w4a4_residual(main.view(), none.view(), qw.view(), groups.view(), 9, 6, 64, compensated.data());
    REQUIRE_SAME_MATRIX(compensated, plain, 6);
}

TEST_CASE("gemm_w4a4_residual: the error falls with the ratio, from 10 % to 1 %", "[gemm_w4a4_residual]") {
    const int M = 64, N = 48, K = 128;
    const Floats x = plain_data(M * K, 1), w = plain_data(N * K, 2);
    for (const ResidualSelection selection : kSelections) {
        double last = 1.0;
        for (int eighths = 0; eighths <= 8; ++eighths) {
            const double error = gemm_error(x, w, M, N, K, eighths / 8.0f, selection);
            CAPTURE(static_cast<int>(selection), eighths, error);
            REQUIRE(error < last);
            if (eighths == 0) REQUIRE((error > 0.05 && error < 0.15));
            if (eighths == 8) REQUIRE(error < 0.015);
            last = error;
        }
    }
}

TEST_CASE("gemm_w4a4_residual: token beats batch beats random at half the channels", "[gemm_w4a4_residual]") {
    const int M = 64, N = 48, K = 128;
    const Floats x = plain_data(M * K, 3), w = plain_data(N * K, 4);
    const double token = gemm_error(x, w, M, N, K, 0.5f, ResidualSelection::token);
    const double batch = gemm_error(x, w, M, N, K, 0.5f, ResidualSelection::batch);
    const double random = gemm_error(x, w, M, N, K, 0.5f, ResidualSelection::random);
    CAPTURE(token, batch, random);
    REQUIRE(token < 0.5 * batch);
    REQUIRE(batch < random);
}

TEST_CASE("quantize_nvfp4_residual: the same bits with one and two threads", "[quantize_nvfp4_residual]") {
    const GroupRows groups({100, 0, 157});
    const Floats x = spread_floats(257 * 48, 8);
    Packed main = quantized(x, groups, 48, OuterScale::row);
    for (const ResidualSelection selection : kSelections) {
        std::vector<Packed> runs;
        with_one_and_two_threads([&](int) { runs.push_back(residual_of(x, main, groups, 48, 0.3f, selection)); });
        REQUIRE_SAME_BITS(runs[1].scales, runs[0].scales);
        REQUIRE_SAME_BITS(runs[1].codes, runs[0].codes);
    }
}
