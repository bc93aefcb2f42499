// The GEMMs again, vectorised across outputs: y = a b for every group, with b packed into panels of kTileColumns
// columns and a read row by row. Bits equal those of the plain loops because every output is still one ascending sum.
#include <algorithm>

#include "reference/check.hpp"
#include "reference/codec.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_fp8.hpp"
#include "reference/gemm_tile.hpp"
#include "reference/gemm_w4a4.hpp"
#include "reference/memory.hpp"
#include "reference/parallel.hpp"

namespace quads::reference::fast {
namespace {

constexpr int kChunkRows = 8 * kTileRows;  // rows of a that are kept near while all panels pass by
constexpr int kChunkDepth = 128;           // k values taken at a time: a panel of them fits the first cache

// Names of the scratch arrays.
struct PanelsOf {};
struct LeftRows {};
struct ResidualRows {};
struct DecodedRows {};

// Rows worth a thread when each costs `products` multiplications.
int row_grain(std::size_t products) {
    return static_cast<int>(std::max<std::size_t>(kTileRows, 100000 / std::max<std::size_t>(products, 1)));
}

// Right operand of one group: element (k, column j) is data[(j / kTileColumns) * stride + k * kTileColumns +
// j % kTileColumns], with zeros beyond the last column.
struct Panels {
    const float* data;
    std::size_t stride;
};

int panels_of(int columns) { return (columns + kTileColumns - 1) / kTileColumns; }

// Panels of E stacked matrices (N, K) whose rows become columns. source(first, rows, memory) gives consecutive rows of
// the stack, in `memory` if it has to make them. Group e begins at data + e * panels_of(N) * stride.
template <typename Source>
Panels pack_columns(int E, int N, int K, const Source& source) {
    const int panels = panels_of(N);
    const std::size_t stride = static_cast<std::size_t>(K) * kTileColumns;
    float* data = scratch<PanelsOf>(E * panels * stride);
    parallel_for(E * panels, 1 + 50000 / static_cast<int>(stride + 1), [&](int p) {
        const int first = p % panels * kTileColumns, columns = std::min(kTileColumns, N - first);
        const std::size_t row = static_cast<std::size_t>(p / panels) * N + first;
        const float* rows = source(row, columns, scratch<DecodedRows>(stride));
        float* panel = data + p * stride;
        if (columns < kTileColumns) std::fill(panel, panel + stride, 0.0f);
        for (int k = 0; k < K; ++k) {
            for (int j = 0; j < columns; ++j) panel[k * kTileColumns + j] = rows[static_cast<std::size_t>(j) * K + k];
        }
    });
    return {data, stride};
}

// Panels of bf16(x), x (rows, columns): k runs over the rows. Row r begins at data + r * kTileColumns.
Panels pack_rows(const float* x, int rows, int columns) {
    const std::size_t stride = static_cast<std::size_t>(rows) * kTileColumns;
    float* data = scratch<PanelsOf>(panels_of(columns) * stride);
    parallel_for(rows, row_grain(columns), [&](int r) {
        const float* row = x + static_cast<std::size_t>(r) * columns;
        float* panel = data + static_cast<std::size_t>(r) * kTileColumns;
        int first = 0;
        for (; columns - first >= kTileColumns; first += kTileColumns, panel += stride) {
            for (int j = 0; j < kTileColumns; ++j) panel[j] = bf16_round(row[first + j]);
        }
        if (first == columns) return;
        for (int j = 0; j < kTileColumns; ++j) panel[j] = first + j < columns ? bf16_round(row[first + j]) : 0.0f;
    });
    return {data, stride};
}

// Columns first .. first + columns - 1 of bf16(x), x (rows, stride), packed row by row.
const float* pack_left(const float* x, int rows, std::size_t stride, int first, int columns) {
    float* rounded = scratch<LeftRows>(static_cast<std::size_t>(rows) * columns);
    for (int i = 0; i < rows; ++i) {
        const float* row = x + i * stride + first;
        for (int j = 0; j < columns; ++j) rounded[i * columns + j] = bf16_round(row[j]);
    }
    return rounded;
}

// Some rows of the left operand: element (row i, k) is data[i * row_stride + k * step]; likewise in `residual`.
struct Left {
    const float* data;
    const float* residual;
    std::ptrdiff_t row_stride, step;
};

// Rows i .. i + 5 of `rows`; beyond the end the last row again, whose results nobody stores.
TileRows tile_rows(const float* data, const Left& left, int i, int rows) {
    TileRows tile;
    for (int r = 0; r < kTileRows; ++r) tile.row[r] = data + std::min(i + r, rows - 1) * left.row_stride;
    tile.step = left.step;
    return tile;
}

// kPasses = 0: one running sum. 1 and 2: sums of 16-blocks, without and with a residual.
template <int kPasses>
void multiply_tile(const Left& left, int i, int rows, const float* panel, int depth, bool fresh,
                   const TileOutput& out) {
    const TileRows a = tile_rows(left.data, left, i, rows);
    if constexpr (kPasses == 0) {
        multiply_running(a, panel, depth, fresh, out);
    } else {
        multiply_blocks<kPasses>(a, kPasses == 2 ? tile_rows(left.residual, left, i, rows) : a, panel, depth, out);
    }
}

// A tile that reaches over the edge of y, of which rows x columns lie inside, is computed beside it.
template <typename Multiply>
void multiply_at_edge(const TileOutput& out, int rows, int columns, const Multiply& multiply) {
    float tile[kTileRows * kTileColumns] = {};
    TileOutput beside = out;
    beside.y = tile;
    beside.stride = kTileColumns;
    for (int r = 0; r < rows; ++r) std::copy_n(out.y + r * out.stride, columns, tile + r * kTileColumns);
    multiply(beside);
    for (int r = 0; r < rows; ++r) std::copy_n(tile + r * kTileColumns, columns, out.y + r * out.stride);
}

// Adds `depth` values of k to the rows of y (rows, N), whose sums begin with them where `fresh`, and multiplies row r
// by factor(r). `panel` is the first of b's panels at the first of these k.
template <int kPasses, typename Factor>
void multiply_chunk(const Left& left, int rows, const float* panel, std::size_t panel_stride, int N, int depth,
                    bool fresh, const Factor& factor, float* y) {
    for (int n = 0; n < N; n += kTileColumns, panel += panel_stride) {
        for (int i = 0; i < rows; i += kTileRows) {
            const int inside = std::min(kTileRows, rows - i), columns = std::min(kTileColumns, N - n);
            TileOutput out{y + static_cast<std::size_t>(i) * N + n, N, {}};
            for (int r = 0; r < inside; ++r) out.factor[r] = factor(i + r);
            const auto multiply = [&](const TileOutput& tile) {
                multiply_tile<kPasses>(left, i, rows, panel, depth, fresh, tile);
            };
            if (inside == kTileRows && columns == kTileColumns) {
                multiply(out);
            } else {
                multiply_at_edge(out, inside, columns, multiply);
            }
        }
    }
}

// y[m,n] = factor(m) * sum_k a[m,k] b[k,n] for rows begin .. end-1 of one group. load(first, rows, k, depth) gives a
// part of a. Where K is taken in several chunks the running sums wait in y, which changes no bit of them.
template <int kPasses, typename Load, typename Factor>
void multiply_rows(int begin, int end, int N, int K, int chunk_depth, Panels b, const Load& load, const Factor& factor,
                   float* y) {
    for (int first = begin; first < end; first += kChunkRows) {
        const int rows = std::min(kChunkRows, end - first);
        int k = 0;
        do {
            const int depth = std::min(chunk_depth, K - k);
            const bool finished = k + depth == K;
            multiply_chunk<kPasses>(
                load(first, rows, k, depth), rows, b.data + static_cast<std::size_t>(k) * kTileColumns, b.stride, N,
                depth, k == 0, [&](int r) { return finished ? factor(first + r) : 1.0f; },
                y + static_cast<std::size_t>(first) * N);
            k += depth;
        } while (k < K);
    }
}

// body(e, begin, end) for the parts of all groups among the M rows, in parallel.
template <typename Body>
void for_group_rows(Groups groups, int M, std::size_t products, const Body& body) {
    parallel_ranges(M, row_grain(products), [&](int begin, int end) {
        for (int e = 0; e < groups.E; ++e) {
            const int first = std::max(begin, groups.offsets[e]), last = std::min(end, groups.offsets[e + 1]);
            if (first < last) body(e, first, last);
        }
    });
}

}  // namespace

void gemm_bf16(const float* x, const float* w, const float* w_outer, Groups groups, int M, int N, int K, float* y) {
    const Panels b = pack_columns(groups.E, N, K, [&](std::size_t row, int, float*) { return w + row * K; });
    for_group_rows(groups, M, static_cast<std::size_t>(N) * K, [&](int e, int begin, int end) {
        const float factor = w_outer != nullptr ? w_outer[e] : 1.0f;
        multiply_rows<0>(
            begin, end, N, K, kChunkDepth, {b.data + e * panels_of(N) * b.stride, b.stride},
            [&](int m, int, int k, int) { return Left{x + static_cast<std::size_t>(m) * K + k, nullptr, K, 1}; },
            [&](int) { return factor; }, y);
    });
}

void gemm_bf16_backward_input(const float* dy, const float* w, const float* w_outer, Groups groups, int M, int N, int K,
                              float* dx) {
    const Panels b = pack_rows(w, groups.E * N, K);
    for_group_rows(groups, M, static_cast<std::size_t>(N) * K, [&](int e, int begin, int end) {
        const float factor = w_outer != nullptr ? w_outer[e] : 1.0f;
        const auto load = [&](int first, int rows, int n, int depth) {
            const float* rounded = pack_left(dy + static_cast<std::size_t>(first) * N, rows, N, n, depth);
            return Left{rounded, nullptr, depth, 1};
        };
        multiply_rows<0>(begin, end, K, N, kChunkDepth,
                         {b.data + static_cast<std::size_t>(e) * N * kTileColumns, b.stride}, load,
                         [&](int) { return factor; }, dx);
    });
}

void gemm_bf16_backward_weight(const float* dy, const float* x, Groups groups, int, int N, int K, float* dw) {
    // The work of group e is its rows times the row tiles of dw; threads take equal shares of the sum over groups. Both
    // operands are packed a chunk of rows at a time, so that all tiles find it in the cache.
    const int tiles = (N + kTileRows - 1) / kTileRows;
    const auto share = [&](int e, int begin, int end) {
        const int rows_of_group = groups.offsets[e + 1] - groups.offsets[e];
        const int first = begin * kTileRows, columns = std::min(end * kTileRows, N) - first;
        int m = 0;
        do {
            const int depth = std::min(kChunkDepth, rows_of_group - m);
            const std::size_t row = static_cast<std::size_t>(groups.offsets[e]) + m;
            const Panels b = pack_rows(x + row * K, depth, K);
            const Left left{pack_left(dy + row * N, depth, N, first, columns), nullptr, 1, columns};
            multiply_chunk<0>(left, columns, b.data, b.stride, K, depth, m == 0, [](int) { return 1.0f; },
                              dw + (static_cast<std::size_t>(e) * N + first) * K);
            m += depth;
        } while (m < rows_of_group);
    };
    const auto weight = [&](int e) { return std::max(1, groups.offsets[e + 1] - groups.offsets[e]); };
    int total = 0;
    for (int e = 0; e < groups.E; ++e) total += weight(e) * tiles;
    parallel_ranges(total, row_grain(static_cast<std::size_t>(kTileRows) * K), [&](int begin, int end) {
        for (int e = 0, start = 0; e < groups.E; start += weight(e) * tiles, ++e) {
            // Tile t lies at start + t * weight(e).
            const auto tile_from = [&](int position) {
                return std::clamp((position - start + weight(e) - 1) / weight(e), 0, tiles);
            };
            if (tile_from(begin) < tile_from(end)) share(e, tile_from(begin), tile_from(end));
        }
    });
}

namespace {

// Rows first .. first + rows - 1 of a packed tensor as q * s: exact in FP32.
float* decode_rows(Nvfp4 q, std::size_t first, int rows, int K, float* memory) {
    const int offsets[2] = {0, rows};
    dequantize_nvfp4({q.codes + first * code_bytes_of(K), q.scales + first * blocks_of(K), nullptr, q.outer_scale},
                     {offsets, 1}, rows, K, false, memory);
    return memory;
}

float* decode_rows(Fp8 q, std::size_t first, int rows, int K, float* memory) {
    const int offsets[2] = {0, rows};
    dequantize_fp8({q.codes + first * K, nullptr, q.outer_scale}, {offsets, 1}, rows, K, false, memory);
    return memory;
}

// The quantised GEMMs: both sides are decoded while they are packed, the outer scales come after the sum.
template <int kPasses, typename Packed>
void multiply_packed(Packed x, Packed residual, Packed w, Groups groups, int M, int N, int K, float* y) {
    const Panels b = pack_columns(groups.E, N, K, [&](std::size_t row, int rows, float* memory) {
        return decode_rows(w, row, rows, K, memory);
    });
    for_group_rows(groups, M, static_cast<std::size_t>(N) * K, [&](int e, int begin, int end) {
        const auto load = [&](int m, int rows, int, int) {
            const std::size_t floats = static_cast<std::size_t>(kChunkRows) * K;
            float* main = decode_rows(x, m, rows, K, scratch<LeftRows>(floats));
            float* second = kPasses == 2 ? decode_rows(residual, m, rows, K, scratch<ResidualRows>(floats)) : nullptr;
            return Left{main, second, K, 1};
        };
        const auto factor = [&](int m) {
            return (x.outer_scale == OuterScale::row ? x.outer[m] : x.outer[e]) * w.outer[e];
        };
        multiply_rows<kPasses>(begin, end, N, K, K, {b.data + e * panels_of(N) * b.stride, b.stride}, load, factor, y);
    });
}

// K with the padding of the last block, whose codes take part in the block's dot as any others.
int padded(int K) {
    check(K >= 1, "A W4A4 GEMM needs at least one column, but K is ", K, ". Pass matrices with columns.");
    return blocks_of(K) * kBlock;
}

}  // namespace

void gemm_w4a4(Nvfp4 x, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    multiply_packed<1>(x, x, w, groups, M, N, padded(K), y);
}

void gemm_w4a4_residual(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    multiply_packed<2>(x, residual, w, groups, M, N, padded(K), y);
}

void gemm_fp8(Fp8 x, Fp8 w, Groups groups, int M, int N, int K, float* y) {
    check(K >= 1, "An FP8 GEMM needs at least one column, but K is ", K, ". Pass matrices with columns.");
    multiply_packed<0>(x, x, w, groups, M, N, K, y);
}

}  // namespace quads::reference::fast
