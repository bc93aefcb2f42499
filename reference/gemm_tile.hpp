// The inner loops of the fast GEMMs: a tile of 6 rows by two vectors of outputs that stays in registers while k runs.
// Every output keeps its own ascending sum, so a tile gives the bits of the plain loops.
#pragma once

#include <algorithm>
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

struct alignas(64) Tile {
    float sum[kTileRows][kTileColumns];
};

// Left operand of a tile: element (row i, k) is row[i][k * step].
struct TileRows {
    const float* row[kTileRows];
    std::ptrdiff_t step;
};

// sum[i,:] += a[i,k] b[k,:] for one k; b is a packed panel (K, kTileColumns).
QUADS_CONTRACT_FUNCTION inline void add_products(const TileRows& a, const float* b, int k,
                                                 Vector (&sum)[kTileRows][2]) {
    QUADS_CONTRACT_BLOCK
    Vector b0, b1;
    std::memcpy(&b0, b + k * kTileColumns, sizeof b0);
    std::memcpy(&b1, b + k * kTileColumns + kLanes, sizeof b1);
    for (int i = 0; i < kTileRows; ++i) {
        const float value = a.row[i][k * a.step];
        sum[i][0] += value * b0;
        sum[i][1] += value * b1;
    }
}

// Vector by vector: one copy of the whole tile would be a call.
inline void load_tile(const Tile& tile, Vector (&sum)[kTileRows][2]) {
    for (int i = 0; i < kTileRows; ++i) {
        for (int half = 0; half < 2; ++half) std::memcpy(&sum[i][half], tile.sum[i] + half * kLanes, sizeof(Vector));
    }
}
inline void store_tile(const Vector (&sum)[kTileRows][2], Tile& tile) {
    for (int i = 0; i < kTileRows; ++i) {
        for (int half = 0; half < 2; ++half) std::memcpy(tile.sum[i] + half * kLanes, &sum[i][half], sizeof(Vector));
    }
}

// tile[i,j] = (tile[i,j], or 0 where the sum is fresh) + sum_k a[i,k] b[k,j], ascending k, rounding at each step.
QUADS_CONTRACT_FUNCTION inline void multiply_running(const TileRows& a, const float* b, int K, bool fresh, Tile& tile) {
    Vector sum[kTileRows][2] = {};
    if (!fresh) load_tile(tile, sum);
    for (int k = 0; k < K; ++k) add_products(a, b, k, sum);
    store_tile(sum, tile);
}

// The same with the sums of NVFP4, K a multiple of 16: each block is summed from 0, exactly, and then added to the
// tile. a and residual hold q * s; with two passes each block of b meets first a's and then residual's.
template <int kPasses>
QUADS_CONTRACT_FUNCTION inline void multiply_blocks(TileRows a, TileRows residual, const float* b, int K, Tile& tile) {
    for (int first = 0; first < K; first += kBlock) {
        for (int pass = 0; pass < kPasses; ++pass) {
            Vector dot[kTileRows][2] = {};
            for (int k = first; k < first + kBlock; ++k) add_products(pass == 0 ? a : residual, b, k, dot);
            for (int i = 0; i < kTileRows; ++i) {
                for (int half = 0; half < 2; ++half) {
                    Vector sum;
                    std::memcpy(&sum, tile.sum[i] + half * kLanes, sizeof sum);
                    sum += dot[i][half];
                    std::memcpy(tile.sum[i] + half * kLanes, &sum, sizeof sum);
                }
            }
        }
    }
}

}  // namespace quads::reference::fast
