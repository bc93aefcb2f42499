// Sums down the columns of a matrix in ascending row: long chains of dependent additions for few outputs. The whole
// block fetches the next chunk of rows while one thread per column adds the last one from shared memory.
#pragma once

#include "kernels/device.hpp"

namespace quads::kernels {

constexpr int kSumColumns = 8;   // columns of a block: 32 bytes, the smallest piece that memory delivers
constexpr int kSumRows = 256;    // rows of a chunk
constexpr int kSumThreads = 256;
constexpr int kSumAhead = 16;    // divides kSumRows

// sum_{begin <= row < end} a * b by fma from 0, {a, b} = terms(row, column), for the columns first .. first + 7 below
// `columns`. store(column, sum) is called once a column. A block of kSumThreads threads calls it.
template <typename Terms, typename Store>
__device__ void column_sums(int begin, int end, int first, int columns, Terms terms, Store store) {
    __shared__ float2 chunk[kSumRows][kSumColumns];
    constexpr int kEach = kSumRows * kSumColumns / kSumThreads;
    const int my_row = threadIdx.x / kSumColumns, my_column = threadIdx.x % kSumColumns;

    float2 next[kEach];
    const auto fetch = [&](int from) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const int row = from + my_row + i * (kSumThreads / kSumColumns);
            const bool inside = row < end && first + my_column < columns;
            next[i] = inside ? terms(row, first + my_column) : make_float2(0.0f, 0.0f);
        }
    };

    float sum = 0.0f;
    fetch(begin);
    for (int from = begin; from < end; from += kSumRows) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kEach; ++i) chunk[my_row + i * (kSumThreads / kSumColumns)][my_column] = next[i];
        __syncthreads();
        fetch(from + kSumRows);
        if (threadIdx.x >= kSumColumns) continue;
        // Sixteen reads are under way before the first is used. Rows beyond the end hold zeros, which change no sum.
        for (int row = 0; row < min(kSumRows, end - from); row += kSumAhead) {
            float2 ahead[kSumAhead];
#pragma unroll
            for (int i = 0; i < kSumAhead; ++i) ahead[i] = chunk[row + i][threadIdx.x];
#pragma unroll
            for (int i = 0; i < kSumAhead; ++i) sum = fmaf(ahead[i].x, ahead[i].y, sum);
        }
    }
    if (threadIdx.x < kSumColumns && first + static_cast<int>(threadIdx.x) < columns) store(first + threadIdx.x, sum);
}

}  // namespace quads::kernels
