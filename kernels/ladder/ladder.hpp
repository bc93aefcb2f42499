// Two ladders from a kernel that reads in five minutes to one that runs at the speed of the card. Every rung of a
// ladder has the same signature and gives the same bits as reference/; its first lines say what is new on it. Pointers
// are device pointers, work is queued on the one stream of kernels/device.hpp, and any M, N, K >= 1 and any groups are
// allowed.
#pragma once

#include <cstddef>

#include "reference/gemm_w4a4.hpp"
#include "reference/nvfp4.hpp"

namespace quads::kernels::ladder {

// reference::quantize_nvfp4 for finite x: the check for NaN and Inf belongs to kernels/nvfp4.cu, not to the lesson.
using QuantizeNvfp4 = decltype(reference::quantize_nvfp4);
QuantizeNvfp4 quantize_nvfp4_1_naive, quantize_nvfp4_2_warp, quantize_nvfp4_3_tuned;

// Main pass with one outer scale per row and the residual of ResidualSelection::token in one kernel: the bits of
// reference::quantize_nvfp4 and reference::quantize_nvfp4_residual.
void quantize_nvfp4_4_residual(const float* x,  // (M, K)
                               int M, int K, float ratio,
                               Nvfp4 main,       // outer (M), OuterScale::row
                               Nvfp4 residual);  // codes and scales are written

// reference::gemm_w4a4, or reference::gemm_w4a4_residual where `residual` is not nullptr.
using GemmW4a4 = void(Nvfp4 x,                // (M, K) packed
                      const Nvfp4* residual,  // (M, K) codes and scales, or nullptr (a host pointer)
                      Nvfp4 w,                // (E * N, K) packed; order of its bytes: see PackedOrder
                      Groups groups, int M, int N, int K,
                      float* y);  // (M, N)
GemmW4a4 gemm_w4a4_1_naive, gemm_w4a4_2_shared, gemm_w4a4_3_dp4a, gemm_w4a4_4_mma, gemm_w4a4_5_decode,
    gemm_w4a4_6_prefill, gemm_w4a4_7_emulated;

// reference::gemm_w4a4_split, or reference::gemm_w4a4_residual_split where `residual` is not nullptr. gemm_w4a4_5_decode
// is the same kernel with splits = 1. Error unless 1 <= splits <= 16.
void gemm_w4a4_5_decode_split(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, int splits,
                              float* y);

// The same kernel as gemm_w4a4_7_emulated over Blackwell's own instruction. It rounds otherwise (see its file), needs a
// GPU of compute capability 12.0 or 12.1 and code built for 120a; Error elsewhere.
GemmW4a4 gemm_w4a4_7_native_sm120a;

// Needs a GPU of compute capability 9.0 and code built for 90a; Error elsewhere. Takes 2 bytes of scratch memory per
// element.
GemmW4a4 gemm_w4a4_8_prefill_sm90a;

// Order of the weights' bytes that a rung expects.
enum class PackedOrder {
    rows,       // as reference/nvfp4.hpp says
    fragments,  // as prepack_weights writes them
};

struct QuantizeRung {
    const char* name;
    QuantizeNvfp4* run;
};
constexpr QuantizeRung kQuantizeRungs[] = {
    {"1_naive", quantize_nvfp4_1_naive}, {"2_warp", quantize_nvfp4_2_warp}, {"3_tuned", quantize_nvfp4_3_tuned}};

struct GemmRung {
    const char* name;
    GemmW4a4* run;
    PackedOrder weights;
    int major = 0;  // the compute capability (9: 9.0) that the rung needs, where it is not any
};
constexpr GemmRung kGemmRungs[] = {
    {"1_naive", gemm_w4a4_1_naive, PackedOrder::rows},
    {"2_shared", gemm_w4a4_2_shared, PackedOrder::rows},
    {"3_dp4a", gemm_w4a4_3_dp4a, PackedOrder::rows},
    {"4_mma", gemm_w4a4_4_mma, PackedOrder::rows},
    {"5_decode", gemm_w4a4_5_decode, PackedOrder::fragments},
    {"6_prefill", gemm_w4a4_6_prefill, PackedOrder::rows},
    {"7_emulated", gemm_w4a4_7_emulated, PackedOrder::rows},
    {"8_prefill_sm90a", gemm_w4a4_8_prefill_sm90a, PackedOrder::rows, 9},
};

// Weights in the order in which the decode kernel's tensor-core fragments want them, so that a lane loads the codes of
// four tiles of 16 rows by one scale block as 16 bytes. Part of weight sync: done once per update, not once per token.
// Rows are padded to 16 per matrix, columns to 128; the padding is written (code 0, scale 0).
//   codes   [E][ceil(N/16)][ceil(K/128)][four blocks 2][lane 32][block 4] words: eight codes of one lane
//   scales  [E][ceil(N/16)][ceil(K/128)][row g 8][block 8][rows g and g + 8] bytes
// Lane l holds of rows l/4 and l/4 + 8 the columns 4 (l%4) .. 4 (l%4) + 3 of each block; the bits of a word are explained
// at encode_fragment in fragments.cuh.
std::size_t prepacked_code_bytes(int E, int N, int K);
std::size_t prepacked_scale_bytes(int E, int N, int K);
void prepack_weights(Nvfp4 w,  // (E * N, K)
                     int E, int N, int K,
                     Nvfp4 packed);  // codes and scales are written; outer is w's and not touched

}  // namespace quads::kernels::ladder
