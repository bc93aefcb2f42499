// The CUDA kernels: the same names, signatures, shapes and bits as in reference/, documented there. All pointers, those
// inside Groups, Nvfp4 and Fp8 too, are device pointers. A call only queues work on one stream: it neither waits nor
// returns a value to the host, so a sequence of calls can be captured into a CUDA graph.
//
// One thing differs from the reference: errors of the quantisers and of sampling that depend on values are thrown, with
// the reference's sentence, by the next copy to the host; the outputs are then unspecified. Indices (tokens, rows,
// experts) are not checked.
#pragma once

#include <cstddef>

#include "reference/adamw.hpp"
#include "reference/attention.hpp"
#include "reference/embedding.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_fp8.hpp"
#include "reference/gemm_w4a4.hpp"
#include "reference/log_softmax.hpp"
#include "reference/nvfp4.hpp"
#include "reference/rmsnorm.hpp"
#include "reference/router.hpp"
#include "reference/swiglu.hpp"

namespace quads::kernels {

// Chooses the first usable GPU (compute capability 8.0 or later); Error with the reason where there is none. Optional:
// the first call of anything else does it too.
void start();

// Memory of that GPU, contents undefined; Error where it runs out.
void* allocate(std::size_t bytes);
void release(void* memory);

// Copies of `bytes`. to_host waits for everything queued before it and throws its errors.
void to_device(void* destination, const void* host, std::size_t bytes);
void to_host(void* host, const void* source, std::size_t bytes);

decltype(reference::quantize_nvfp4) quantize_nvfp4;
decltype(reference::dequantize_nvfp4) dequantize_nvfp4;
decltype(reference::quantize_nvfp4_residual) quantize_nvfp4_residual;
decltype(reference::count_code_flips) count_code_flips;
decltype(reference::gemm_w4a4) gemm_w4a4;
decltype(reference::gemm_w4a4_residual) gemm_w4a4_residual;
decltype(reference::gemm_w4a4_split) gemm_w4a4_split;
decltype(reference::gemm_w4a4_residual_split) gemm_w4a4_residual_split;
decltype(reference::gemm_bf16) gemm_bf16;
decltype(reference::gemm_bf16_backward_input) gemm_bf16_backward_input;
decltype(reference::gemm_bf16_backward_weight) gemm_bf16_backward_weight;
decltype(reference::quantize_fp8) quantize_fp8;
decltype(reference::dequantize_fp8) dequantize_fp8;
decltype(reference::gemm_fp8) gemm_fp8;
decltype(reference::rmsnorm) rmsnorm;
decltype(reference::rmsnorm_backward) rmsnorm_backward;
decltype(reference::swiglu) swiglu;
decltype(reference::swiglu_backward) swiglu_backward;
decltype(reference::split_qkv) split_qkv;
decltype(reference::attention) attention;
decltype(reference::attention_backward) attention_backward;
decltype(reference::router_topk) router_topk;
decltype(reference::router_topk_backward) router_topk_backward;
decltype(reference::route_rows) route_rows;
decltype(reference::gather_rows) gather_rows;
decltype(reference::combine_rows) combine_rows;
decltype(reference::combine_rows_backward) combine_rows_backward;
decltype(reference::embed) embed;
decltype(reference::embed_backward) embed_backward;
decltype(reference::add) add;
decltype(reference::round_bf16) round_bf16;
decltype(reference::scatter_rows) scatter_rows;
decltype(reference::scatter_rows_int) scatter_rows_int;
decltype(reference::log_softmax) log_softmax;
decltype(reference::log_softmax_backward) log_softmax_backward;
decltype(reference::sample) sample;
decltype(reference::adamw) adamw;
decltype(reference::sum_squares) sum_squares;

}  // namespace quads::kernels
