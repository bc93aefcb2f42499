// Causal multi-head attention over the rows of a SequenceTree, with keys and values in a cache of the same layout.
//   a[i]    = RN((sum_c q[c] k_i[c]) * RN(1 / sqrt(C)))      ascending c from 0, i = 0 .. keys(row)-1
//   p[i]    = exact_exp(a[i] - max a) / sum, the sum over ascending i
//   o[c]    = bf16(sum_i bf16(p[i]) v_i[c])                  ascending i from 0
// q, k and v are BF16-valued (or E4M3-valued, which is a subset), so products are exact.
#pragma once

#include "reference/dims.hpp"

namespace quads {

// How keys and values are kept in the cache.
enum class KvFormat {
    bf16,
    fp8,    // E4M3 without a scale, of the BF16 value
    nvfp4,  // of the BF16 value, a row of K or V at a time: one outer scale per row, blocks of 16 along the head's columns
            // where C is a multiple of 16; read as bf16((q * s) * g)
};

namespace reference {

// Splits the output of the fused QKV projection: q = bf16(.), and k, v rounded to the cache's format and stored at the
// rows' places in the cache. nvfp4 is stored as bf16: its scales need whole rows, which the NVFP4 quantiser takes next.
void split_qkv(const float* qkv,  // (T, 3D): columns 0 .. D-1 q, D .. 2D-1 k, 2D .. 3D-1 v; FP32
               const int* rows,   // (T) cache row of each input row
               int T, int D, KvFormat format,
               float* q,          // (T, D)
               float* k_cache,    // (tree.rows(), D), only the given rows are written
               float* v_cache);   // (tree.rows(), D)

void attention(const float* q,        // (T, D)
               const float* k_cache,  // (tree.rows(), D)
               const float* v_cache,  // (tree.rows(), D)
               const int* rows,       // (T) tree row of each query
               SequenceTree tree, int T, int D, int H,
               float* o);             // (T, D) BF16-valued

// Backward of attention for the whole tree at once: query t is tree row t, T = tree.rows(). p is recomputed as above;
// roundings are passed through; e = bf16(do):
//   dp[i]      = sum_c e[c] v_i[c]                              ascending c from 0
//   ds[i]      = bf16((p[i] * (dp[i] - sum_j p[j] dp[j])) * RN(1 / sqrt(C)))      the inner sum by ascending fma
//   dq[t,c]    = sum_i ds[i] k_i[c]                             ascending i from 0
//   dk[row,c]  = sum_t ds_t[row] q_t[c]                         ascending t over the queries that see the row
//   dv[row,c]  = sum_t bf16(p_t[row]) e_t[c]                    ascending t
void attention_backward(const float* d_o,  // (T, D)
                        const float* q,    // (T, D)
                        const float* k,    // (T, D)
                        const float* v,    // (T, D)
                        SequenceTree tree, int D, int H,
                        float* dqkv);      // (T, 3D) overwritten, laid out as in split_qkv

}  // namespace reference
}  // namespace quads
