// One alphabet of dimensions, used in every signature, comment, test and notebook of this project.
//
//   T  rows (tokens) of one forward pass       V  vocabulary
//   D  model width                             E  experts; also: groups of a grouped GEMM
//   H  attention heads                         S  slots: experts that one token goes to (top-k)
//   C  width of one head, D / H                F  hidden width of one expert
//   L  layers                                  R  routed rows, T * S
//   M, N, K  rows, outputs and summed length of a GEMM: y[m,n] = sum_k x[m,k] w[n,k]
//   B  scale blocks of a row, ceil(K / 16)
//
// All matrices are row-major and dense. Activations and weights travel as float; "BF16-valued" means that every
// float of the array is exactly representable in BF16.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define QUADS_HOST_DEVICE __host__ __device__
#else
#define QUADS_HOST_DEVICE
#endif

namespace quads {

constexpr int kBlock = 16;  // consecutive columns that share one NVFP4 block scale

// Scale blocks of a row of K columns; the last one is padded with zeros.
QUADS_HOST_DEVICE constexpr int blocks_of(int K) { return (K + kBlock - 1) / kBlock; }

// Bytes of a row of packed E2M1 codes: two codes a byte, padding included.
QUADS_HOST_DEVICE constexpr int code_bytes_of(int K) { return blocks_of(K) * (kBlock / 2); }

// Groups of consecutive rows: rows offsets[e] .. offsets[e+1]-1 belong to group e. Groups may be empty. A dense
// operation is one with a single group, offsets = {0, M}.
struct Groups {
    const int* offsets;  // (E + 1), ascending, offsets[0] = 0, offsets[E] = number of rows
    int E;
};

// The rows of a GRPO batch. The G responses of one prompt share its rows, so a prompt is computed once:
//
//   row = p * rows_per_prompt() + i                        i < prompt: token i of prompt p
//   row = p * rows_per_prompt() + prompt + g * response + j            token j of response g
//
// A row sees the prompt up to itself and, in a response, that response up to itself. With group = 1 this is plain
// causal attention. The KV cache of the rollout has the same layout, so that both engines speak of the same rows.
struct SequenceTree {
    int prompts;   // independent prompts
    int prompt;    // tokens of a prompt
    int group;     // responses per prompt
    int response;  // tokens of a response that are fed to the model

    QUADS_HOST_DEVICE int rows_per_prompt() const { return prompt + group * response; }
    QUADS_HOST_DEVICE int rows() const { return prompts * rows_per_prompt(); }

    // Position of a row in its sequence, from 0.
    QUADS_HOST_DEVICE int position(int row) const {
        const int i = row % rows_per_prompt();
        return i < prompt ? i : prompt + (i - prompt) % response;
    }
    // Row of token j of a response; responses are counted through all prompts, prompt * group + response of the prompt.
    QUADS_HOST_DEVICE int response_row(int sequence, int j) const {
        return sequence / group * rows_per_prompt() + prompt + sequence % group * response + j;
    }
    // Number of rows that `row` attends to, itself included.
    QUADS_HOST_DEVICE int keys(int row) const { return position(row) + 1; }

    // The i-th row that `row` attends to, in ascending position: 0 <= i < keys(row).
    QUADS_HOST_DEVICE int key_row(int row, int i) const {
        const int first = row - row % rows_per_prompt();
        return i < prompt ? first + i : row - (position(row) - i);
    }
};

}  // namespace quads
