#include "reference/gemm_w4a4.hpp"

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

// Both GEMMs; `residual` is nullptr for the plain one.
void gemm(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int N, int K, float* y) {
    check(K >= 1, "A W4A4 GEMM needs at least one column, but K is ", K, ". Pass matrices with columns.");
    const std::size_t blocks = blocks_of(K);
    const std::size_t block_bytes = kBlock / 2;
    for (int e = 0; e < groups.E; ++e) {
        const int first = groups.offsets[e];
        parallel_for(groups.offsets[e + 1] - first, 1, [&](int i) {
            const std::size_t m = first + i;
            const float factor = (x.outer_scale == OuterScale::row ? x.outer[m] : x.outer[e]) * w.outer[e];
            for (int n = 0; n < N; ++n) {
                const std::size_t x_row = m * blocks, w_row = (static_cast<std::size_t>(e) * N + n) * blocks;
                float acc = 0.0f;
                for (std::size_t b = 0; b < blocks; ++b) {
                    const std::size_t xb = x_row + b, wb = w_row + b;
                    const std::uint8_t* w_codes = w.codes + wb * block_bytes;
                    acc += block_term(x.codes + xb * block_bytes, x.scales[xb], w_codes, w.scales[wb]);
                    if (residual == nullptr) continue;
                    acc += block_term(residual->codes + xb * block_bytes, residual->scales[xb], w_codes, w.scales[wb]);
                }
                y[m * N + n] = acc * factor;
            }
        });
    }
}

}  // namespace

void gemm_w4a4(Nvfp4 x, Nvfp4 w, Groups groups, int, int N, int K, float* y) {
    gemm(x, nullptr, w, groups, N, K, y);
}

void gemm_w4a4_residual(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int, int N, int K, float* y) {
    gemm(x, &residual, w, groups, N, K, y);
}

}  // namespace quads::reference
