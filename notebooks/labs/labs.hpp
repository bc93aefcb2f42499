// What the labs ask for. Lab NN is done in notebooks/labs/NN_*.cpp, whose functions are declared here, and is checked
// by
//   make lab LAB=NN
// Matrices are row-major and dense; letters of dimensions: reference/dims.hpp. Bits count: a result is right if every
// bit is. The headers under reference/ are the specification; the .cpp files beside them are the solutions (codecs are
// in the header itself).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace student {

// Thrown by what is still to be written.
struct NotWritten : std::logic_error {
    explicit NotWritten(const std::string& function) : std::logic_error(function + " is not written yet") {}
};

// --- Lab 01, codec: reference/codec.hpp ---
std::uint8_t e2m1_encode(float x);               // 0 .. 15, nearest, ties to even, saturating, -0 is 8, NaN is 7
float e2m1_decode(std::uint8_t code);            // 0 .. 15
std::uint8_t e4m3_encode(float x);               // nearest, ties to even, saturating at 448, NaN is 0x7F
float e4m3_decode(std::uint8_t code);            // 0x7F and 0xFF are NaN
void pack_row(const std::uint8_t* codes, int K,  // K codes, one a byte
              std::uint8_t* packed);             // 8 * ceil(K / 16) bytes, even column low, padding 0

// --- Lab 02, quantiser: reference/nvfp4.hpp. Codecs of reference/codec.hpp may be used from here on. ---
void quantize_row(const float* x, int K,  // finite
                  std::uint8_t* codes,    // 8 * ceil(K / 16)
                  std::uint8_t* scales,   // ceil(K / 16)
                  float* outer);          // 1

// --- Lab 03, W4A4 GEMM: reference/gemm_w4a4.hpp ---
float block_term(const std::uint8_t* x, std::uint8_t x_scale,   // 8 bytes of codes and one E4M3 scale a side
                 const std::uint8_t* w, std::uint8_t w_scale);  // dot * (sx * sw)
void gemm_w4a4(const std::uint8_t* x_codes, const std::uint8_t* x_scales, const float* x_outer,  // (M, K), outer (M)
               const std::uint8_t* w_codes, const std::uint8_t* w_scales, const float* w_outer,  // (N, K), outer (1)
               int M, int N, int K, float* y);                                                   // (M, N)

// --- Lab 04, residual compensation: reference/nvfp4.hpp, quantize_nvfp4_residual with ResidualSelection::batch ---
void quantize_residual(const float* x,  // (M, K)
                       const std::uint8_t* codes, const std::uint8_t* scales,
                       const float* outer,  // main pass, outer (M)
                       int M, int K, float ratio, std::uint8_t* residual_codes, std::uint8_t* residual_scales);
void gemm_w4a4_residual(const std::uint8_t* x_codes, const std::uint8_t* x_scales, const float* x_outer,
                        const std::uint8_t* residual_codes, const std::uint8_t* residual_scales,
                        const std::uint8_t* w_codes, const std::uint8_t* w_scales, const float* w_outer, int M, int N,
                        int K, float* y);

// --- Lab 05, mixture of experts: reference/router.hpp, reference/gemm_bf16.hpp ---
void router_topk(const float* logits, int T, int E, int S,         // (T, E)
                 float* probs, int* experts, float* gates);        // (T, E), (T, S), (T, S)
void route_rows(const int* experts, int T, int E, int S,           // (T, S)
                int* offsets, int* source, int* place);            // (E + 1), (T S), (T, S)
void grouped_gemm(const float* x, const float* w,                  // (M, K), (E, N, K), BF16-valued
                  const int* offsets, int E, int M, int N, int K,  // rows offsets[e] .. offsets[e+1]-1 meet matrix e
                  float* y);                                       // (M, N)

// --- Lab 06, backward with the straight-through estimator: reference/gemm_bf16.hpp with one group ---
// The forward was y = w_outer * (x times quantised w); dy is rounded to BF16 before use, and so is x.
void backward_input(const float* dy, const float* w, float w_outer, int M, int N, int K, float* dx);
// The gradient of the master weight: as if it had not been quantised.
void backward_weight(const float* dy, const float* x, int M, int N, int K, float* dw);

// --- Lab 07, GRPO: src/grpo.hpp ---
void group_advantages(const float* rewards, int n, int group, float epsilon, float* advantages);  // (n) each
// d loss / d logp_trainer (sequences, n); `tokens` is the number of tokens the mean is over.
void policy_gradient(const float* logp_trainer, const float* logp_rollout,  // (sequences, n)
                     const float* advantages, const int* lengths,           // (sequences)
                     int sequences, int n, int tokens, float clip_low, float clip_high, float* gradient);

}  // namespace student
