/* The symbols that `make verify OP=name KERNEL=file` looks for: kernel_NAME, and only that one.
 *
 * In a .cpp file all pointers are host memory. In a .cu file they are device memory, work is queued on stream 0, and
 * the tool copies and waits. Matrices are row-major and dense; arrays start on 256 bytes and have no room behind them.
 * Inputs must not be written, every byte of an output must be. Formulas and the order of every sum: the header of the
 * operation in reference/. Packing: codes (M, 8 B) bytes, two E2M1 codes a byte, even column in the low nibble, columns
 * K .. 16 B - 1 hold code 0; scales (M, B) E4M3 bytes; B = (K + 15) / 16. */
#ifndef QUADS_VERIFY_KERNEL_H
#define QUADS_VERIFY_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* reference/nvfp4.hpp: x (M, K), finite, to codes, scales and one outer scale per row, outer (M) */
void kernel_quantize_nvfp4(const float* x, int M, int K, uint8_t* codes, uint8_t* scales, float* outer);

/* reference/nvfp4.hpp: x (M, K) = (q * s) * g, with outer (M) */
void kernel_dequantize_nvfp4(const uint8_t* codes, const uint8_t* scales, const float* outer, int M, int K, float* x);

/* reference/gemm_w4a4.hpp: y (M, N) from x (M, K) and w (N, K), both packed; x_outer (M), w_outer (1) */
void kernel_gemm_w4a4(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer, const uint8_t* w_codes,
                      const uint8_t* w_scales, const float* w_outer, int M, int N, int K, float* y);

/* The same with a second pass, residual (M, K): each block adds its main term, then its residual term. */
void kernel_gemm_w4a4_residual(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer,
                               const uint8_t* residual_codes, const uint8_t* residual_scales, const uint8_t* w_codes,
                               const uint8_t* w_scales, const float* w_outer, int M, int N, int K, float* y);

/* reference/gemm_bf16.hpp: y (M, N) in FP32 from the BF16 bits of x (M, K) and w (N, K) */
void kernel_gemm_bf16(const uint16_t* x, const uint16_t* w, int M, int N, int K, float* y);

/* reference/rmsnorm.hpp: x (T, D), g (D) to h (T, D), BF16-valued floats, and rstd (T) */
void kernel_rmsnorm(const float* x, const float* g, int T, int D, float* h, float* rstd);

/* reference/router.hpp: logits (T, E) to probs (T, E), experts (T, S) and gates (T, S) */
void kernel_router_topk(const float* logits, int T, int E, int S, float* probs, int* experts, float* gates);

#ifdef __cplusplus
}
#endif
#endif
