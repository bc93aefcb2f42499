/* C interface of the CPU reference, for C, Python (ctypes), Triton and PyTorch test suites.
 *
 *   make library                  builds build/libquads_reference.so
 *   cc program.c -Lbuild -lquads_reference -Wl,-rpath,$PWD/build
 *
 * Arrays are host memory, row-major and dense, and belong to the caller. Formulas, the order of every sum and the
 * letters of the dimensions are those of the C++ header named above each group; dims.hpp has the alphabet.
 *
 * Packed NVFP4 matrix of M rows and K columns, B = (K + 15) / 16 blocks a row:
 *   codes   M x 8 B bytes   two E2M1 codes a byte, even column in the low nibble; columns K .. 16 B - 1 hold code 0
 *   scales  M x B bytes     one E4M3 scale per 16 consecutive columns, 0x00 .. 0x7E
 *   outer   floats          one FP32 factor per row (QUADS_OUTER_ROW: M) or per group (QUADS_OUTER_GROUP: E)
 *   value = (code * scale) * outer
 *
 * Groups: `offsets` holds E + 1 ascending row numbers, from 0 to M; rows offsets[e] .. offsets[e+1]-1 meet matrix e of
 * E stacked ones. NULL means one group of all rows, and E must then be 1.
 *
 * Every function that returns int returns QUADS_OK or a code below; after one of those quads_error_message() says what
 * was expected, what was found and how to fix it. Refused are: a null pointer (unless "or NULL" is said), a negative
 * size, K, D, V or S below 1, offsets that do not ascend from 0 to M, an index out of range, and whatever a function
 * states itself. Sizes of arrays cannot be checked. No function keeps a pointer; all may be called from any thread. */
#ifndef QUADS_REFERENCE_H
#define QUADS_REFERENCE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUADS_OK 0
#define QUADS_ERROR_ARGUMENT 1 /* an argument or a value of an array is refused; outputs are not to be used */
#define QUADS_ERROR_INTERNAL 2 /* out of memory, or a defect of this library */

#define QUADS_OUTER_ROW 0
#define QUADS_OUTER_GROUP 1

/* Which channels the second pass of residual compensation keeps. */
#define QUADS_SELECT_BATCH 0
#define QUADS_SELECT_TOKEN 1
#define QUADS_SELECT_RANDOM 2

/* Denominator of the policy ratio: the rollout's log-probability, none (ratio 1), or truncated importance sampling */
#define QUADS_CORRECTION_ROLLOUT 0
#define QUADS_CORRECTION_NONE 1
#define QUADS_CORRECTION_TIS 2

/* The sentence of this thread's last error, "" before the first. Valid until this thread's next call. Never NULL. */
const char* quads_error_message(void);

/* Threads that the operations use from now on; 0 asks the machine. The results do not depend on it. */
int quads_set_threads(int threads);

/* ---- codec.hpp: n values each way, round to nearest, ties to even. One code per byte, not packed. ---- */
int quads_e2m1_encode(const float* x, int64_t n, uint8_t* codes); /* 0 .. 15; saturates at 6; NaN becomes +6 */
int quads_e2m1_decode(const uint8_t* codes, int64_t n, float* x); /* upper four bits ignored */
int quads_e4m3_encode(const float* x, int64_t n, uint8_t* codes); /* saturates at 448; NaN becomes 0x7F */
int quads_e4m3_decode(const uint8_t* codes, int64_t n, float* x);
int quads_bf16_encode(const float* x, int64_t n, uint16_t* bits);
int quads_bf16_decode(const uint16_t* bits, int64_t n, float* x);
int quads_bf16_round(const float* x, int64_t n, float* y); /* y may be x */
/* rows x columns codes to rows x ceil(columns / 2) bytes and back; an odd row ends in a high nibble of 0. */
int quads_pack_codes(const uint8_t* codes, int rows, int columns, uint8_t* packed);
int quads_unpack_codes(const uint8_t* packed, int rows, int columns, uint8_t* codes);

/* ---- exact_math.hpp: the same bits on every machine. n values; y may be x. ---- */
int quads_exact_exp(const float* x, int64_t n, float* y);
int quads_exact_log(const float* x, int64_t n, float* y);
int quads_exact_sigmoid(const float* x, int64_t n, float* y);
int quads_exact_silu(const float* x, int64_t n, float* y);
int quads_exact_rsqrt(const float* x, int64_t n, float* y);

/* ---- nvfp4.hpp ---- */

/* x (M, K) to codes (M, 8 B), scales (M, B) and outer (M) or (E); every byte is written. Refuses NaN and Inf. */
int quads_quantize_nvfp4(const float* x, const int* offsets, int E, int M, int K, int outer_scale,
                         uint8_t* codes, uint8_t* scales, float* outer);

/* x (M, K) = (q * s) * g; without the factor g where with_outer is 0, and then exact in BF16. */
int quads_dequantize_nvfp4(const uint8_t* codes, const uint8_t* scales, const float* outer, const int* offsets, int E,
                           int M, int K, int outer_scale, int with_outer, float* x);

/* Second pass of residual activation compensation. x and the main pass (codes, scales, outer) that was made from it
 * with the same groups give residual_codes (M, 8 B) and residual_scales (M, B), under the same outer scale.
 * ratio in 0 .. 1: share of the K channels that are kept. Refuses NaN and Inf. */
int quads_quantize_nvfp4_residual(const float* x, const uint8_t* codes, const uint8_t* scales, const float* outer,
                                  const int* offsets, int E, int M, int K, int outer_scale, float ratio, int selection,
                                  uint8_t* residual_codes, uint8_t* residual_scales);

/* flips (M): columns whose code differs between a and b (M, K) each, quantised with an outer scale per row. */
int quads_count_code_flips(const float* a, const float* b, int M, int K, int* flips);

/* ---- gemm_w4a4.hpp: y (M, N) = x (M, K) times w (E, N, K). w_outer (E). ---- */
int quads_gemm_w4a4(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer, int x_outer_scale,
                    const uint8_t* w_codes, const uint8_t* w_scales, const float* w_outer,
                    const int* offsets, int E, int M, int N, int K, float* y);
int quads_gemm_w4a4_residual(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer, int x_outer_scale,
                             const uint8_t* residual_codes, const uint8_t* residual_scales,
                             const uint8_t* w_codes, const uint8_t* w_scales, const float* w_outer,
                             const int* offsets, int E, int M, int N, int K, float* y);

/* ---- oracles.hpp: second opinions on the GEMMs ---- */

/* The exact sum over the blocks, before the outer scales, in units of 2^-20: sum and magnitude (M, N), the latter over
 * the terms' absolute values. residual_codes and residual_scales: both, or both NULL for the plain GEMM. */
int quads_gemm_w4a4_exact(const uint8_t* x_codes, const uint8_t* x_scales, const uint8_t* residual_codes,
                          const uint8_t* residual_scales, const uint8_t* w_codes, const uint8_t* w_scales,
                          const int* offsets, int E, int M, int N, int K, int64_t* sum, int64_t* magnitude);

/* y as a tensor core gives it: BF16 by Hopper's mma.m16n8k16 (measured), W4A4 by Blackwell's mxf4nvf4 (a published
 * model, not confirmed on hardware). Arguments as quads_gemm_bf16 and quads_gemm_w4a4. */
int quads_gemm_bf16_tensor_core(const float* x, const float* w, const float* w_outer, const int* offsets, int E,
                                int M, int N, int K, float* y);
int quads_gemm_w4a4_tensor_core(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer,
                                int x_outer_scale, const uint8_t* w_codes, const uint8_t* w_scales,
                                const float* w_outer, const int* offsets, int E, int M, int N, int K, float* y);

/* ---- gemm_bf16.hpp: x (M, K), w (E, N, K), y and dy (M, N). w_outer (E), a factor of the finished sum, or NULL. ----
 * x and w hold BF16 values (round with quads_bf16_round); dy, and x of the weight gradient, are rounded inside. */
int quads_gemm_bf16(const float* x, const float* w, const float* w_outer, const int* offsets, int E,
                    int M, int N, int K, float* y);
int quads_gemm_bf16_backward_input(const float* dy, const float* w, const float* w_outer, const int* offsets, int E,
                                   int M, int N, int K, float* dx);
int quads_gemm_bf16_backward_weight(const float* dy, const float* x, const int* offsets, int E, int M, int N, int K,
                                    float* dw);

/* ---- gemm_fp8.hpp: one E4M3 code per byte, (M, K) and (E, N, K); outer as for NVFP4, w_outer (E). ---- */
int quads_quantize_fp8(const float* x, const int* offsets, int E, int M, int K, int outer_scale,
                       uint8_t* codes, float* outer);
int quads_dequantize_fp8(const uint8_t* codes, const float* outer, const int* offsets, int E, int M, int K,
                         int outer_scale, int with_outer, float* x);
int quads_gemm_fp8(const uint8_t* x_codes, const float* x_outer, int x_outer_scale, const uint8_t* w_codes,
                   const float* w_outer, const int* offsets, int E, int M, int N, int K, float* y);

/* ---- rmsnorm.hpp, swiglu.hpp: x, h, dh, dx (T, D); g, dg (D); rstd (T); gate_up (R, 2F); m, dm (R, F) ---- */
int quads_rmsnorm(const float* x, const float* g, int T, int D, float* h, float* rstd);
int quads_rmsnorm_backward(const float* dh, const float* x, const float* g, const float* rstd, int T, int D,
                           float* dx, float* dg);
int quads_swiglu(const float* gate_up, int R, int F, float* m);
int quads_swiglu_backward(const float* dm, const float* gate_up, int R, int F, float* dgate_up);

/* ---- router.hpp: logits, probs (T, E); experts, gates, place (T, S); offsets (E + 1); source (T S) ---- */
int quads_router_topk(const float* logits, const int* replay /* (T, S) or NULL */, int T, int E, int S,
                      float* probs, int* experts, float* gates);
int quads_router_topk_backward(const float* dgates, const float* probs, const int* experts, const float* gates,
                               const int* offsets, float balance, int T, int E, int S, float* dlogits);
int quads_route_rows(const int* experts, int T, int E, int S, int* offsets, int* source, int* place);
/* y (R, D) from x (T, D): row r is x[source[r]]. */
int quads_gather_rows(const float* x, const int* source, int T, int R, int D, float* y);
/* y (T, D) from x (T S, D); gates or NULL for a plain sum. */
int quads_combine_rows(const float* x, const int* place, const float* gates, int T, int D, int S, float* y);
int quads_combine_rows_backward(const float* dy, const float* x, const int* place, const float* gates,
                                int T, int D, int S, float* dx, float* dgates);

/* ---- attention.hpp: all rows of one tree, T = prompts * (prompt + group * response); q, k, v, o (T, D) BF16-valued;
 * H heads divide D. With group = 1 and response = 0 this is plain causal attention over `prompt` tokens. ---- */
int quads_attention(const float* q, const float* k, const float* v, int prompts, int prompt, int group, int response,
                    int D, int H, float* o);
int quads_attention_backward(const float* d_o, const float* q, const float* k, const float* v,
                             int prompts, int prompt, int group, int response, int D, int H,
                             float* dqkv /* (T, 3D): dq, dk, dv side by side */);

/* ---- log_softmax.hpp: logits, logp, weights, dlogits (T, V); entropy (T); temperature > 0 ---- */
int quads_log_softmax(const float* logits, float temperature, int T, int V, float* logp, float* entropy);
int quads_log_softmax_backward(const float* logp, const float* weights, float temperature, int T, int V,
                               float* dlogits);
/* token (N) and its log-probability (N), drawn from rows row (N) of logp (T, V) by Philox. */
int quads_sample(const float* logp, const int* row, int T, int N, int V, uint32_t seed, uint32_t step,
                 uint32_t first_sequence, uint32_t position, int* token, float* token_logp);

/* ---- grpo.hpp ---- */

/* rewards and advantages (n), group after group; n is a multiple of group. */
int quads_group_advantages(const float* rewards, int n, int group, float epsilon, float* advantages);

/* gradient (sequences, n) = d loss / d logp_trainer. advantages and lengths (sequences); tokens at and beyond a length
 * get exactly 0. tokens: the count that the mean divides by, the sum of the lengths for a whole batch. */
int quads_policy_gradient(const float* logp_trainer, const float* logp_rollout, const float* advantages,
                          const int* lengths, int sequences, int n, int tokens, int correction,
                          float clip_low, float clip_high, float tis_cap, float* gradient);

#ifdef __cplusplus
}
#endif
#endif
