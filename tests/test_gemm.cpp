#include <cmath>
#include <functional>

#include <Eigen/Core>

#include "reference/codec.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_fp8.hpp"
#include "reference/gemm_w4a4.hpp"
#include "tests/arrays.hpp"
#include "tests/compare.hpp"
#include "tests/packed.hpp"
#include "tests/refusal.hpp"

using namespace quads;

namespace {

// One grouped GEMM: x (M, K), w (E, N, K), dy (M, N), packed every way. Weights have their groups' outer scales.
struct Problem {
    Problem(const Ints& rows, int n, int k, std::uint32_t seed)
        : groups(rows), weight_rows(Ints(rows.size(), n)), M(groups.rows()), N(n), K(k), E(groups.view().E),
          x(nearest_bf16(spread_floats(static_cast<std::size_t>(M) * K, seed))),
          w(random_bf16(static_cast<std::size_t>(E) * N * K, seed + 10)),
          dy(random_floats(static_cast<std::size_t>(M) * N, seed + 20, 1e-3f)),
          w_outer(random_floats(E, seed + 30)),
          qx(quantized(x, groups, K, OuterScale::row)),
          residual(M, K, E, OuterScale::row),
          qw(quantized(w, weight_rows, K, OuterScale::group)) {
        reference::quantize_nvfp4_residual(x.data(), qx.view(), groups.view(), M, K, 0.5f, ResidualSelection::token,
                                           residual.view());
    }
    GroupRows groups, weight_rows;
    int M, N, K, E;
    Floats x, w, dy, w_outer;
    Packed qx, residual, qw;
};

// An FP8 tensor with its memory.
struct PackedFp8 {
    PackedFp8(const Floats& x, const GroupRows& groups, int K, OuterScale kind)
        : codes(x.size(), 0xA5), outer(kind == OuterScale::row ? groups.rows() : groups.view().E, NAN), kind(kind) {
        reference::quantize_fp8(x.data(), groups.view(), groups.rows(), K, view());
    }
    Fp8 view() { return {codes.data(), outer.data(), kind}; }
    Bytes codes;
    Floats outer;
    OuterScale kind;
};

using Run = std::function<void(float* y)>;

// The output of a GEMM on memory full of NaN.
Floats result(std::size_t size, const Run& run) {
    Floats y(size, NAN);
    run(y.data());
    return y;
}

void require_fast_is_plain(const Ints& rows, int N, int K) {
    Problem p(rows, N, K, 100 + N + K);
    const Groups g = p.groups.view();
    PackedFp8 fx(p.x, p.groups, K, OuterScale::row), fw(p.w, p.weight_rows, K, OuterScale::group);
    const std::size_t y = std::size_t(p.M) * N, dx = std::size_t(p.M) * K, dw = std::size_t(p.E) * N * K;
    const float *xs = p.x.data(), *ws = p.w.data(), *dys = p.dy.data(), *outer = p.w_outer.data();
    const Nvfp4 qx = p.qx.view(), qr = p.residual.view(), qw = p.qw.view();
    namespace plain = reference;
    namespace fast = reference::fast;
    const struct { const char* name; std::size_t size; int columns; Run plain_run, fast_run; } cases[] = {
        {"gemm_bf16", y, N, [&](float* o) { plain::gemm_bf16(xs, ws, nullptr, g, p.M, N, K, o); },
         [&](float* o) { fast::gemm_bf16(xs, ws, nullptr, g, p.M, N, K, o); }},
        {"gemm_bf16 with outer", y, N, [&](float* o) { plain::gemm_bf16(xs, ws, outer, g, p.M, N, K, o); },
         [&](float* o) { fast::gemm_bf16(xs, ws, outer, g, p.M, N, K, o); }},
        {"backward_input", dx, K, [&](float* o) { plain::gemm_bf16_backward_input(dys, ws, outer, g, p.M, N, K, o); },
         [&](float* o) { fast::gemm_bf16_backward_input(dys, ws, outer, g, p.M, N, K, o); }},
        {"backward_weight", dw, K, [&](float* o) { plain::gemm_bf16_backward_weight(dys, xs, g, p.M, N, K, o); },
         [&](float* o) { fast::gemm_bf16_backward_weight(dys, xs, g, p.M, N, K, o); }},
        {"gemm_w4a4", y, N, [&](float* o) { plain::gemm_w4a4(qx, qw, g, p.M, N, K, o); },
         [&](float* o) { fast::gemm_w4a4(qx, qw, g, p.M, N, K, o); }},
        {"gemm_w4a4_residual", y, N, [&](float* o) { plain::gemm_w4a4_residual(qx, qr, qw, g, p.M, N, K, o); },
         [&](float* o) { fast::gemm_w4a4_residual(qx, qr, qw, g, p.M, N, K, o); }},
        {"gemm_fp8", y, N, [&](float* o) { plain::gemm_fp8(fx.view(), fw.view(), g, p.M, N, K, o); },
         [&](float* o) { fast::gemm_fp8(fx.view(), fw.view(), g, p.M, N, K, o); }},
    };
    for (const auto& c : cases) {
        CAPTURE(c.name, p.M, N, K, p.E);
        REQUIRE_SAME_MATRIX(result(c.size, c.fast_run), result(c.size, c.plain_run), c.columns);
    }
}

}  // namespace

TEST_CASE("gemm: the fast versions give the bits of the plain loops",
          "[gemm_bf16][gemm_w4a4][gemm_w4a4_residual][gemm_fp8]") {
    for (const int K : {1, 15, 16, 17, 33, 64}) {
        for (const int N : {1, 5, 16, 17, 33}) {
            require_fast_is_plain({7}, N, K);
            require_fast_is_plain({0, 1, 0, 13, 6, 0}, N, K);
        }
    }
    require_fast_is_plain({}, 8, 16);             // no group at all
    require_fast_is_plain({0, 0}, 8, 16);         // no row
    require_fast_is_plain({0, 0, 61, 0}, 24, 48); // all rows in one group
    require_fast_is_plain({600, 3}, 20, 40);      // sums over rows longer than one chunk
    require_fast_is_plain({9}, 20, 700);          // sums over columns longer than one chunk
    require_fast_is_plain({9}, 700, 20);          // sums over outputs longer than one chunk
}

TEST_CASE("gemm: the same bits with one and two threads", "[gemm_bf16][gemm_w4a4]") {
    Problem p({100, 0, 157, 43}, 72, 80, 1);
    const Groups g = p.groups.view();
    std::vector<Floats> runs[4];
    with_one_and_two_threads([&](int) {
        runs[0].push_back(result(300 * 72, [&](float* y) {
            reference::fast::gemm_w4a4_residual(p.qx.view(), p.residual.view(), p.qw.view(), g, 300, 72, 80, y);
        }));
        runs[1].push_back(result(300 * 72, [&](float* y) {
            reference::fast::gemm_bf16(p.x.data(), p.w.data(), nullptr, g, 300, 72, 80, y);
        }));
        runs[2].push_back(result(300 * 80, [&](float* y) {
            reference::fast::gemm_bf16_backward_input(p.dy.data(), p.w.data(), nullptr, g, 300, 72, 80, y);
        }));
        runs[3].push_back(result(4 * 72 * 80, [&](float* y) {
            reference::fast::gemm_bf16_backward_weight(p.dy.data(), p.x.data(), g, 300, 72, 80, y);
        }));
    });
    for (const auto& run : runs) REQUIRE_SAME_BITS(run[1], run[0]);
}

TEST_CASE("gemm_bf16: an ascending sum whose products do not round", "[gemm_bf16]") {
    Problem p({3, 0, 5}, 4, 40, 2);
    Floats expected, with_outer;
    for (int m = 0; m < p.M; ++m) {
        const int e = p.groups.group_of(m);
        for (int n = 0; n < p.N; ++n) {
            float sum = 0.0f;
            for (int k = 0; k < p.K; ++k) {
                const double product = double(p.x[m * p.K + k]) * double(p.w[(e * p.N + n) * p.K + k]);
                REQUIRE(double(float(product)) == product);
                sum = static_cast<float>(double(sum) + product);  // exact in double, then rounded once
            }
            expected.push_back(sum);
            with_outer.push_back(sum * p.w_outer[e]);
        }
    }
    const auto run = [&](const float* outer) {
        return result(expected.size(), [&](float* y) {
            reference::gemm_bf16(p.x.data(), p.w.data(), outer, p.groups.view(), p.M, p.N, p.K, y);
        });
    };
    REQUIRE_SAME_MATRIX(run(nullptr), expected, p.N);
    REQUIRE_SAME_MATRIX(run(p.w_outer.data()), with_outer, p.N);
}

TEST_CASE("gemm_bf16: backward is the forward of transposed operands", "[gemm_bf16]") {
    Problem p({6}, 5, 19, 3);
    const Floats dy = nearest_bf16(p.dy);
    Floats w_transposed, dy_transposed, x_transposed;
    for (int k = 0; k < p.K; ++k) {
        for (int n = 0; n < p.N; ++n) w_transposed.push_back(p.w[n * p.K + k]);
        for (int m = 0; m < p.M; ++m) x_transposed.push_back(p.x[m * p.K + k]);
    }
    for (int n = 0; n < p.N; ++n) {
        for (int m = 0; m < p.M; ++m) dy_transposed.push_back(dy[m * p.N + n]);
    }
    const GroupRows outputs({5});
    const Floats dx = result(6 * 19, [&](float* y) {
        reference::gemm_bf16_backward_input(p.dy.data(), p.w.data(), nullptr, p.groups.view(), 6, 5, 19, y);
    });
    const Floats dw = result(5 * 19, [&](float* y) {
        reference::gemm_bf16_backward_weight(p.dy.data(), p.x.data(), p.groups.view(), 6, 5, 19, y);
    });
    REQUIRE_SAME_BITS(dx, result(6 * 19, [&](float* y) {
        reference::gemm_bf16(dy.data(), w_transposed.data(), nullptr, p.groups.view(), 6, 19, 5, y);
    }));
    REQUIRE_SAME_BITS(dw, result(5 * 19, [&](float* y) {
        reference::gemm_bf16(dy_transposed.data(), x_transposed.data(), nullptr, outputs.view(), 5, 19, 6, y);
    }));
}

// An oracle that shares nothing with the reference: Eigen's products in double. Each of the K steps of a sum in FP32 rounds
// by at most 2^-24 of what the partial sums can reach.
TEST_CASE("gemm_bf16: Eigen's products in double, forward and backward", "[gemm_bf16]") {
    using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const auto matrix = [](const Floats& x, int rows, int columns) -> Matrix {
        using Stored = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
        return Eigen::Map<const Stored>(x.data(), rows, columns).cast<double>();
    };
    const auto is_product = [&](const Floats& y, const Matrix& a, const Matrix& b) {
        const Matrix error = (matrix(y, a.rows(), b.cols()) - a * b).cwiseAbs();
        const Matrix bound = a.cwiseAbs() * b.cwiseAbs() * (a.cols() * 0x1p-24);
        return (error.array() <= bound.array()).all();  // false for NaN
    };
    const int M = 33, N = 17, K = 31;
    const Problem p({M}, N, K, 5);
    const Matrix x = matrix(p.x, M, K), w = matrix(p.w, N, K), dy = matrix(nearest_bf16(p.dy), M, N);
    Floats y = result(M * N, [&](float* out) {
        reference::gemm_bf16(p.x.data(), p.w.data(), nullptr, p.groups.view(), M, N, K, out);
    });
    const Floats dx = result(M * K, [&](float* out) {
        reference::gemm_bf16_backward_input(p.dy.data(), p.w.data(), nullptr, p.groups.view(), M, N, K, out);
    });
    const Floats dw = result(N * K, [&](float* out) {
        reference::gemm_bf16_backward_weight(p.dy.data(), p.x.data(), p.groups.view(), M, N, K, out);
    });
    CHECK(is_product(y, x, w.transpose()));
    CHECK(is_product(dx, dy, w));
    CHECK(is_product(dw, dy.transpose(), x));
    y[M * N / 2] *= 1.001f;
    CHECK_FALSE(is_product(y, x, w.transpose()));
    y[M * N / 2] = NAN;
    CHECK_FALSE(is_product(y, x, w.transpose()));
}

TEST_CASE("gemm_w4a4: block dots by decoded values, one rounding a block, outer scales last", "[gemm_w4a4]") {
    for (const OuterScale kind : {OuterScale::row, OuterScale::group}) {
        Problem p({5, 0, 4}, 3, 75, 4);
        Packed qx = quantized(p.x, p.groups, p.K, kind);
        Packed ux = qx, uw = p.qw;  // with outer scales of 1, values are q * s
        ux.outer.assign(ux.outer.size(), 1.0f);
        uw.outer.assign(uw.outer.size(), 1.0f);
        Floats expected;
        for (int m = 0; m < p.M; ++m) {
            const int e = p.groups.group_of(m);
            for (int n = 0; n < p.N; ++n) {
                float acc = 0.0f;
                for (int b = 0; b < blocks_of(p.K); ++b) {
                    double term = 0.0;  // exact: a handful of bits
                    for (int k = 16 * b; k < std::min(16 * b + 16, p.K); ++k) {
                        term += double(literal::value(ux, p.groups, m, k, p.K)) *
                                literal::value(uw, p.weight_rows, e * p.N + n, k, p.K);
                    }
                    acc = static_cast<float>(double(acc) + term);
                }
                const float gx = qx.outer[kind == OuterScale::row ? m : e];
                const float alpha = gx * p.qw.outer[e];
                expected.push_back(acc * alpha);
            }
        }
        REQUIRE_SAME_MATRIX(result(expected.size(), [&](float* y) {
            reference::gemm_w4a4(qx.view(), p.qw.view(), p.groups.view(), p.M, p.N, p.K, y);
        }), expected, p.N);
    }
}

TEST_CASE("gemm_w4a4: the order inside a block is free, the order of blocks is not", "[gemm_w4a4]") {
    const int K = 512, blocks = K / 16;
    Problem p({16}, 16, K, 5);
    const auto permuted = [&](Packed packed, bool inside) {
        const Packed source = packed;
        for (std::size_t row = 0; row < 16; ++row) {
            for (int b = 0; b < blocks; ++b) {
                const std::size_t to = row * blocks + b, from = inside ? to : row * blocks + (blocks - 1 - b);
                packed.scales[to] = source.scales[from];
                for (int i = 0; i < 8; ++i) packed.codes[to * 8 + i] = source.codes[from * 8 + (inside ? 7 - i : i)];
            }
        }
        return packed;
    };
    const auto multiply = [&](Packed x, Packed w) {
        return result(16 * 16, [&](float* y) {
            reference::gemm_w4a4(x.view(), w.view(), p.groups.view(), 16, 16, K, y);
        });
    };
    const Floats y = multiply(p.qx, p.qw);
    REQUIRE_SAME_BITS(multiply(permuted(p.qx, true), permuted(p.qw, true)), y);
    REQUIRE(bit_difference(multiply(permuted(p.qx, false), permuted(p.qw, false)), y) != "");
}

TEST_CASE("gemm_w4a4_split: each range from 0 by decoded values, then the ranges in ascending order",
          "[gemm_w4a4_split][gemm_w4a4_residual_split]") {
    Problem p({5, 0, 4}, 3, 16 * 41 - 3, 8);  // 41 blocks: ranges of 48, 24, 16 and 8 of them, and one of 1
    Packed ux = p.qx, ur = p.residual, uw = p.qw;  // with outer scales of 1, values are q * s
    for (Packed* packed : {&ux, &ur, &uw}) packed->outer.assign(packed->outer.size(), 1.0f);
    const auto add_block = [&](const Packed& x, int m, int n, int b, float sum) {
        double term = 0.0;  // exact: a handful of bits
        for (int k = 16 * b; k < std::min(16 * b + 16, p.K); ++k) {
            term += double(literal::value(x, p.groups, m, k, p.K)) * literal::value(uw, p.weight_rows, n, k, p.K);
        }
        return static_cast<float>(double(sum) + term);
    };
    const struct { int splits, range; } cases[] = {{1, 48}, {2, 24}, {3, 16}, {4, 16}, {5, 16}, {6, 8}, {9, 8}};
    std::vector<Floats> found;
    for (const bool with_residual : {false, true}) {
        for (const auto& c : cases) {
            Floats expected;
            for (int m = 0; m < p.M; ++m) {
                const int e = p.groups.group_of(m);
                for (int n = 0; n < p.N; ++n) {
                    float sum = 0.0f;
                    for (int first = 0; first < 41; first += c.range) {
                        float part = 0.0f;
                        for (int b = first; b < std::min(first + c.range, 41); ++b) {
                            part = add_block(ux, m, e * p.N + n, b, part);
                            if (with_residual) part = add_block(ur, m, e * p.N + n, b, part);
                        }
                        sum = sum + part;
                    }
                    const float alpha = p.qx.outer[m] * p.qw.outer[e];
                    expected.push_back(sum * alpha);
                }
            }
            found.push_back(result(expected.size(), [&](float* y) {
                const Groups g = p.groups.view();
                const Nvfp4 x = p.qx.view(), r = p.residual.view(), w = p.qw.view();
                if (with_residual) {
                    reference::gemm_w4a4_residual_split(x, r, w, g, p.M, p.N, p.K, c.splits, y);
                } else {
                    reference::gemm_w4a4_split(x, w, g, p.M, p.N, p.K, c.splits, y);
                }
            }));
            REQUIRE_SAME_MATRIX(found.back(), expected, p.N);
        }
        const Floats plain = result(found.back().size(), [&](float* y) {
            const Groups g = p.groups.view();
            if (with_residual) {
                reference::gemm_w4a4_residual(p.qx.view(), p.residual.view(), p.qw.view(), g, p.M, p.N, p.K, y);
            } else {
                reference::gemm_w4a4(p.qx.view(), p.qw.view(), g, p.M, p.N, p.K, y);
            }
        });
        const std::size_t first = with_residual ? std::size(cases) : 0;
        REQUIRE_SAME_BITS(found[first], plain);
        for (const int i : {1, 2, 5}) REQUIRE(bit_difference(found[first + i], found[first + i - 1]) != "");
    }
}

TEST_CASE("gemm_fp8: codes, outer scales and the sum over decoded codes", "[gemm_fp8]") {
    Problem p({4, 0, 3}, 5, 37, 6);
    for (const OuterScale kind : {OuterScale::row, OuterScale::group}) {
        PackedFp8 fx(p.x, p.groups, p.K, kind), fw(p.w, p.weight_rows, p.K, OuterScale::group);
        Floats decoded, expected;
        for (int m = 0; m < p.M; ++m) {
            const int e = p.groups.group_of(m), row = kind == OuterScale::row;
            const std::size_t begin = row ? m : p.groups.offsets[e], end = row ? m + 1 : p.groups.offsets[e + 1];
            const float g = literal::amax(p.x, begin * p.K, end * p.K) / 448.0f;
            REQUIRE(fx.outer[row ? m : e] == g);
            for (int k = 0; k < p.K; ++k) {
                REQUIRE(fx.codes[m * p.K + k] == literal::e4m3_encode(p.x[m * p.K + k] / g));
                decoded.push_back(literal::e4m3_decode(fx.codes[m * p.K + k]) * g);
            }
            for (int n = 0; n < p.N; ++n) {
                float sum = 0.0f;
                for (int k = 0; k < p.K; ++k) {
                    sum += literal::e4m3_decode(fx.codes[m * p.K + k]) *
                           literal::e4m3_decode(fw.codes[(e * p.N + n) * p.K + k]);
                }
                const float alpha = g * fw.outer[e];
                expected.push_back(sum * alpha);
            }
        }
        REQUIRE_SAME_MATRIX(result(decoded.size(), [&](float* x) {
            reference::dequantize_fp8(fx.view(), p.groups.view(), p.M, p.K, true, x);
        }), decoded, p.K);
        REQUIRE_SAME_MATRIX(result(expected.size(), [&](float* y) {
            reference::gemm_fp8(fx.view(), fw.view(), p.groups.view(), p.M, p.N, p.K, y);
        }), expected, p.N);
    }
}

TEST_CASE("gemm_fp8: zeros, the smallest floats, and refusals", "[gemm_fp8]") {
    const GroupRows groups({2});
    const PackedFp8 zeros(Floats(2 * 3, 0.0f), groups, 3, OuterScale::row);
    REQUIRE_SAME_BITS(zeros.outer, (Floats{1.0f, 1.0f}));
    REQUIRE_SAME_BITS(zeros.codes, Bytes(6, 0));
    const PackedFp8 tiny(Floats{1e-45f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, groups, 3, OuterScale::row);
    REQUIRE_SAME_BITS(tiny.codes, Bytes(6, 0));  // amax / 448 is 0, and so is every code
    REQUIRE(refusal([&] { PackedFp8(Floats{1, 2, 3, 4, NAN, 6}, groups, 3, OuterScale::row); })
                .find("row 1, column 1") != std::string::npos);
}

TEST_CASE("gemm: K < 1 is refused by every quantised GEMM", "[gemm_w4a4][gemm_w4a4_residual][gemm_fp8]") {
    Problem p({2}, 2, 16, 7);
    PackedFp8 f(p.x, p.groups, 16, OuterScale::group);
    const Groups g = p.groups.view();
    const Nvfp4 x = p.qx.view(), r = p.residual.view(), w = p.qw.view();
    Floats y(4);
    REQUIRE(refusal([&] { reference::gemm_w4a4(x, w, g, 2, 2, 0, y.data()); }) != "");
    REQUIRE(refusal([&] { reference::gemm_w4a4_residual(x, r, w, g, 2, 2, 0, y.data()); }) != "");
    REQUIRE(refusal([&] { reference::gemm_w4a4_split(x, w, g, 2, 2, 16, 0, y.data()); }) != "");
    REQUIRE(refusal([&] { reference::gemm_w4a4_residual_split(x, r, w, g, 2, 2, 16, -1, y.data()); }) != "");
    REQUIRE(refusal([&] { reference::gemm_fp8(f.view(), f.view(), g, 2, 2, 0, y.data()); }) != "");
    REQUIRE(refusal([&] { reference::fast::gemm_w4a4(x, w, g, 2, 2, 0, y.data()); }) != "");
    REQUIRE(refusal([&] { reference::fast::gemm_w4a4_residual(x, r, w, g, 2, 2, 0, y.data()); }) != "");
    REQUIRE(refusal([&] { reference::fast::gemm_fp8(f.view(), f.view(), g, 2, 2, 0, y.data()); }) != "");
}
