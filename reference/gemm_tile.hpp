// The inner loops of the fast GEMMs: a tile of 6 rows by two vectors of outputs that stays in registers while k runs.
// Every output keeps its own ascending sum, so a tile gives the bits of the plain loops.
#pragma once

#include <cstddef>
#include <cstring>

#include "reference/dims.hpp"

// Products are exact (or FMA is what is meant, see gemm_bf16.hpp), so contraction into FMA is welcome in these loops
// and only here. clang takes the wish at the start of a block, g++ as an attribute of the function.
#ifdef __clang__
#define QUADS_CONTRACT_FUNCTION
#define QUADS_CONTRACT_BLOCK _Pragma("clang fp contract(fast)")
#else
#define QUADS_CONTRACT_FUNCTION __attribute__((optimize("fp-contract=fast")))
#define QUADS_CONTRACT_BLOCK
#endif

namespace quads::reference::fast {

#ifdef __AVX512F__
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;  // two registers each where vectors are 128 bits wide
#endif
constexpr int kTileRows = 6;
constexpr int kTileColumns = 2 * kLanes;

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

// kLanes floats at any address. The attribute is that of the callers, without which g++ would not inline them.
QUADS_CONTRACT_FUNCTION inline void load(Vector& value, const float* x) { std::memcpy(&value, x, sizeof value); }
QUADS_CONTRACT_FUNCTION inline void store(float* x, const Vector& value) { std::memcpy(x, &value, sizeof value); }

// Left operand of a tile: element (row i, k) is row[i][k * step].
struct TileRows {
    const float* row[kTileRows];
    std::ptrdiff_t step;
};

// A whole tile of the output: row i is y[i * stride], and factor[i] multiplies its finished sums.
struct TileOutput {
    float* y;
    std::ptrdiff_t stride;
    float factor[kTileRows];
};

// Left to itself the compiler unrolls the loops over a tile only after it has decided what lives in registers.
#define QUADS_UNROLL _Pragma("GCC unroll 8")

// sum[i,:] += a[i,k] b[k,:] for one k; b is a packed panel (K, kTileColumns).
QUADS_CONTRACT_FUNCTION inline void add_products(const TileRows& a, const float* b, int k,
                                                 Vector (&sum)[kTileRows][2]) {
    QUADS_CONTRACT_BLOCK
    Vector b0, b1;
    load(b0, b + k * kTileColumns);
    load(b1, b + k * kTileColumns + kLanes);
    QUADS_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
        const float value = a.row[i][k * a.step];
        sum[i][0] += value * b0;
        sum[i][1] += value * b1;
    }
}

// y[i,j] = factor[i] * ((y[i,j], or 0 where the sum is fresh) + sum_k a[i,k] b[k,j]), ascending k, rounding at each
// step.
QUADS_CONTRACT_FUNCTION inline void multiply_running(const TileRows& a, const float* b, int K, bool fresh,
                                                     const TileOutput& out) {
    Vector sum[kTileRows][2] = {};
    QUADS_UNROLL
    for (int i = 0; i < kTileRows && !fresh; ++i) {
        load(sum[i][0], out.y + i * out.stride);
        load(sum[i][1], out.y + i * out.stride + kLanes);
    }
    for (int k = 0; k < K; ++k) add_products(a, b, k, sum);
    QUADS_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
        store(out.y + i * out.stride, sum[i][0] * out.factor[i]);
        store(out.y + i * out.stride + kLanes, sum[i][1] * out.factor[i]);
    }
}

// The same with the sums of NVFP4, K a multiple of 16: each block is summed from 0, exactly, and then added to the
// running sums. a and residual hold q * s; with two passes each block of b meets first a's and then residual's.
template <int kPasses>
QUADS_CONTRACT_FUNCTION inline void multiply_blocks(const TileRows& a, const TileRows& residual, const float* b, int K,
                                                    const TileOutput& out) {
    Vector sum[kTileRows][2] = {};
    for (int first = 0; first < K; first += kBlock) {
        for (int pass = 0; pass < kPasses; ++pass) {
            Vector dot[kTileRows][2] = {};
            for (int k = first; k < first + kBlock; ++k) add_products(pass == 0 ? a : residual, b, k, dot);
            for (int i = 0; i < kTileRows; ++i) {
                sum[i][0] += dot[i][0];
                sum[i][1] += dot[i][1];
            }
        }
    }
    for (int i = 0; i < kTileRows; ++i) {
        store(out.y + i * out.stride, sum[i][0] * out.factor[i]);
        store(out.y + i * out.stride + kLanes, sum[i][1] * out.factor[i]);
    }
}

}  // namespace quads::reference::fast
