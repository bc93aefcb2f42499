#include "reference/gemm_w4a4.hpp"

#include <algorithm>

#include "reference/check.hpp"
#include "reference/codec.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

// dot_b * (sx_b * sw_b) of one 16-block: 8 bytes of codes and one scale byte a side. The dot is summed as the integer
// 4 * dot_b, which no order of terms can change.
float block_term(const std::uint8_t* x, std::uint8_t x_scale, const std::uint8_t* w, std::uint8_t w_scale) {
    int dot4 = 0;
    for (int i = 0; i < kBlock / 2; ++i) {
        dot4 += e2m1_doubled(x[i] & 15) * e2m1_doubled(w[i] & 15) + e2m1_doubled(x[i] >> 4) * e2m1_doubled(w[i] >> 4);
    }
    return (static_cast<float>(dot4) * 0.25f) * (e4m3_decode(x_scale) * e4m3_decode(w_scale));
}

// All four GEMMs; `residual` is nullptr for the plain ones.
void gemm(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int N, int K, int splits, float* y) {
    check(K >= 1, "A W4A4 GEMM needs at least one column, but K is ", K, ". Pass matrices with columns.");
    check(splits >= 1, "A W4A4 GEMM sums at least one range of K, but splits is ", splits, ". Pass 1 for no split.");
    const std::size_t blocks = blocks_of(K), range = split_blocks(K, splits);
    const std::size_t block_bytes = kBlock / 2;
    for (int e = 0; e < groups.E; ++e) {
        const int first = groups.offsets[e];
        parallel_for(groups.offsets[e + 1] - first, 1, [&](int i) {
            const std::size_t m = first + i;
            const float factor = (x.outer_scale == OuterScale::row ? x.outer[m] : x.outer[e]) * w.outer[e];
            for (int n = 0; n < N; ++n) {
                const std::size_t x_row = m * blocks, w_row = (static_cast<std::size_t>(e) * N + n) * blocks;
                float acc = 0.0f;  // 0 + p_0 is p_0, so one range is the plain sum
                for (std::size_t first = 0; first < blocks; first += range) {
                    float part = 0.0f;
                    for (std::size_t b = first; b < std::min(first + range, blocks); ++b) {
                        const std::size_t xb = x_row + b, wb = w_row + b;
                        const std::uint8_t* codes = w.codes + wb * block_bytes;
                        part += block_term(x.codes + xb * block_bytes, x.scales[xb], codes, w.scales[wb]);
                        if (residual == nullptr) continue;
                        part += block_term(residual->codes + xb * block_bytes, residual->scales[xb], codes,
                                           w.scales[wb]);
                    }
                    acc += part;
                }
                y[m * N + n] = acc * factor;
            }
        });
    }
}

}  // namespace

void gemm_w4a4(Nvfp4 x, Nvfp4 w, Groups groups, int, int N, int K, float* y) {
    gemm(x, nullptr, w, groups, N, K, 1, y);
}

void gemm_w4a4_residual(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int, int N, int K, float* y) {
    gemm(x, &residual, w, groups, N, K, 1, y);
}

void gemm_w4a4_split(Nvfp4 x, Nvfp4 w, Groups groups, int, int N, int K, int splits, float* y) {
    gemm(x, nullptr, w, groups, N, K, splits, y);
}

void gemm_w4a4_residual_split(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int, int N, int K, int splits,
                              float* y) {
    gemm(x, &residual, w, groups, N, K, splits, y);
}

}  // namespace quads::reference
