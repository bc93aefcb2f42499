// W4A4 GEMM, rung 6: prefill, many tokens. Arithmetic is the limit now: each block dot costs one FP32 fused
// multiply-add per output beside the tensor core's 16 products, so everything else must be cheap. New here:
//   - a thread block computes 128 tokens by 128 weight rows, a warp 64 by 32: an operand that is read serves many
//     dots;
//   - each row is decoded once per thread block, into FP16 in shared memory, while the next codes are on their way
//     (asynchronous copies); the scale of w is folded in there, the scale of x comes as a float per row and block;
//   - ldmatrix loads four 8 x 8 operands at once; 16-byte pieces of a row are placed by xor with the row number, so
//     that neither the writing rows nor the reading ones meet in a bank. Two thread blocks share a multiprocessor:
//     one decodes while the other multiplies.
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/fragments.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/ladder/pipeline.cuh"
#include "kernels/warp.cuh"

namespace quads::kernels::ladder {
namespace {

constexpr int kTile = 128;                       // tokens and weight rows of a thread block
constexpr int kWarpTokens = 64, kWarpRows = 32;  // of a warp
constexpr int kWarps = 8, kWarpsAcross = kTile / kWarpRows;
constexpr int kStage = 4;            // scale blocks decoded at a time
constexpr int kChunks = kStage * 2;  // 16-byte pieces of 8 FP16 numbers of a row and stage
constexpr int kMmaRows = kWarpTokens / 16, kMmaColumns = kWarpRows / 8;

// One operand of a stage.
struct Operand {
    uint4 decoded[kTile]
                 [kChunks];  // piece c of row r lies at c ^ (r % 8); eight codes of a word in the order 0 4 1 5 2 6 3 7
    uint2 codes[2][kTile][kStage];  // as packed, for this stage and the next
};

template <bool kResidual>
struct Memory {
    Operand x, w;
    Operand residual[kResidual ? 1 : 0];  // absent from the plain GEMM
    // Scales of x, ordered so that a lane finds those of its eight rows together: [pass][block][half of the
    // tile][g][row / 8].
    float scales[kResidual ? 2 : 1][kStage][kTile / kWarpTokens][8][kWarpTokens / 8];
};

// Rows begin .. end-1 of a packed matrix.
struct Rows {
    Nvfp4 q;
    std::int64_t begin, end;
    int blocks;

    // Starts the copy of all codes of a stage, eight bytes at a time, because rows start at multiples of eight.
    __device__ void fetch(uint2 (&codes)[kTile][kStage], int first) const {
        for (int i = threadIdx.x; i < kTile * kStage; i += kWarps * kWarp) {
            const int row = i / kStage, block = i % kStage;
            const bool valid = begin + row < end && first + block < blocks;
            const std::int64_t at = valid ? (begin + row) * blocks + first + block : 0;
            copy_8_async(&codes[row][block], q.codes + at * (kBlock / 2), valid);
        }
    }
    // The scales of a stage of one row, four bytes; zeros outside.
    __device__ std::uint32_t scales(int row, int first) const {
        if (begin + row >= end) return 0;
        const std::uint8_t* source = q.scales + (begin + row) * blocks + first;
        if (blocks % 4 == 0) return *reinterpret_cast<const std::uint32_t*>(source);
        std::uint32_t bytes = 0;
        for (int i = 0; i < kStage && first + i < blocks; ++i)
            bytes |= static_cast<std::uint32_t>(source[i]) << (8 * i);
        return bytes;
    }
};

// Decodes one row of a stage; with kFold times its scales.
template <bool kFold>
__device__ void decode_row(Operand& operand, int buffer, int row, std::uint32_t scales) {
#pragma unroll
    for (int block = 0; block < kStage; ++block) {
        const uint2 words = operand.codes[buffer][row][block];
        const __half2 pair = scales_to_half2(static_cast<std::uint16_t>(block < 2 ? scales : scales >> 16));
        const __half2 scale = block % 2 == 0 ? __low2half2(pair) : __high2half2(pair);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const std::uint32_t codes = half == 0 ? words.x : words.y;
            uint4 numbers = {codes_to_half2<0>(codes), codes_to_half2<1>(codes), codes_to_half2<2>(codes),
                             codes_to_half2<3>(codes)};
            if (kFold) {
                numbers.x = multiply_half2(numbers.x, scale), numbers.y = multiply_half2(numbers.y, scale);
                numbers.z = multiply_half2(numbers.z, scale), numbers.w = multiply_half2(numbers.w, scale);
            }
            operand.decoded[row][(block * 2 + half) ^ (row % 8)] = numbers;
        }
    }
}

__device__ inline void load_four_8x8(const void* row, std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                     std::uint32_t& d) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row))));
}

struct Accumulators {
    float acc[kMmaRows][kMmaColumns][4];
};

// acc += dots of one block of the tokens, whose decoded rows are `x`, with the weight operand b.
__device__ inline void add_terms(const Operand& x, int block, int warp_row, const std::uint32_t (&b)[kMmaColumns][2],
                                 const float (&scales)[8][kWarpTokens / 8], Accumulators& sums) {
    const int lane = lane_id();
    float scale[kWarpTokens / 8];
#pragma unroll
    for (int i = 0; i < kWarpTokens / 8; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(&scales[lane / 4][i]);
        scale[i] = four.x, scale[i + 1] = four.y, scale[i + 2] = four.z, scale[i + 3] = four.w;
    }
#pragma unroll
    for (int i = 0; i < kMmaRows; ++i) {
        const int row = warp_row * kWarpTokens + i * 16 + lane % 16;
        std::uint32_t a[4];
        load_four_8x8(&x.decoded[row][(block * 2 + lane / 16) ^ (row % 8)], a[0], a[1], a[2], a[3]);
#pragma unroll
        for (int j = 0; j < kMmaColumns; ++j) {
            float dot[4];
            mma_16x8x16(a, b[j], dot);
#pragma unroll
            for (int d = 0; d < 4; ++d) sums.acc[i][j][d] = fmaf(dot[d], scale[2 * i + d / 2], sums.acc[i][j][d]);
        }
    }
}

template <bool kResidual>
__global__ void __launch_bounds__(kWarps* kWarp, kResidual ? 1 : 2)
    prefill_kernel(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int N, int K, float* y) {
    extern __shared__ __align__(16) char bytes[];
    Memory<kResidual>& memory = *reinterpret_cast<Memory<kResidual>*>(bytes);
    const RowTile tokens = find_row_tile(groups, kTile, blockIdx.x);
    if (tokens.begin >= tokens.end) return;
    const int first_n = blockIdx.y * kTile, blocks = blocks_of(K), lane = lane_id();
    const int warp_row = threadIdx.x / kWarp / kWarpsAcross, warp_column = threadIdx.x / kWarp % kWarpsAcross;
    const std::int64_t w_begin = static_cast<std::int64_t>(tokens.group) * N;
    const Rows x_rows{x, tokens.begin, tokens.end, blocks}, r_rows{residual, tokens.begin, tokens.end, blocks};
    const Rows w_rows{w, w_begin + first_n, w_begin + N, blocks};
    // Threads 0-127 decode a row of x each, threads 128-255 a row of w.
    const bool for_x = threadIdx.x < kTile;
    const int row = threadIdx.x % kTile;

    const auto fetch = [&](int buffer, int first) {
        x_rows.fetch(memory.x.codes[buffer], first);
        w_rows.fetch(memory.w.codes[buffer], first);
        if constexpr (kResidual) r_rows.fetch(memory.residual[0].codes[buffer], first);
        commit_copies();
    };
    const auto put_scales = [&](int pass, std::uint32_t scales) {
        for (int block = 0; block < kStage; ++block) {
            memory.scales[pass][block][row / kWarpTokens][row % 8][row % kWarpTokens / 8] =
                e4m3_decode(static_cast<std::uint8_t>(scales >> (8 * block)));
        }
    };

    Accumulators sums = {};
    fetch(0, 0);
    std::uint32_t scales = for_x ? x_rows.scales(row, 0) : w_rows.scales(row, 0);
    std::uint32_t r_scales = kResidual && for_x ? r_rows.scales(row, 0) : 0;
    for (int first = 0, buffer = 0; first < blocks; first += kStage, buffer ^= 1) {
        wait_for_copies<0>();
        __syncthreads();  // the codes are there, and the previous stage has been multiplied
        if (first + kStage < blocks) fetch(buffer ^ 1, first + kStage);
        if (for_x) {
            decode_row<false>(memory.x, buffer, row, 0);
            put_scales(0, scales);
            if constexpr (kResidual) {
                decode_row<false>(memory.residual[0], buffer, row, 0);
                put_scales(1, r_scales);
            }
        } else {
            decode_row<true>(memory.w, buffer, row, scales);
        }
        if (first + kStage < blocks) {
            scales = for_x ? x_rows.scales(row, first + kStage) : w_rows.scales(row, first + kStage);
            if (kResidual && for_x) r_scales = r_rows.scales(row, first + kStage);
        }
        __syncthreads();
#pragma unroll 1
        for (int block = 0; block < kStage; ++block) {  // blocks beyond the matrix add +0
            std::uint32_t b[kMmaColumns][2];
#pragma unroll
            for (int j = 0; j < kMmaColumns; j += 2) {
                const int w_row = warp_column * kWarpRows + j * 8 + lane % 8 + lane / 16 * 8;
                load_four_8x8(&memory.w.decoded[w_row][(block * 2 + lane / 8 % 2) ^ (w_row % 8)], b[j][0], b[j][1],
                              b[j + 1][0], b[j + 1][1]);
            }
            add_terms(memory.x, block, warp_row, b, memory.scales[0][block][warp_row], sums);
            if constexpr (kResidual)
                add_terms(memory.residual[0], block, warp_row, b, memory.scales[1][block][warp_row], sums);
        }
    }

    const float w_outer = w.outer[tokens.group];
    for (int i = 0; i < kMmaRows * 2; ++i) {
        const int m = tokens.begin + warp_row * kWarpTokens + i * 8 + lane / 4;
        if (m >= tokens.end) continue;
        const float factor = x.outer[x.outer_scale == OuterScale::row ? m : tokens.group] * w_outer;
#pragma unroll
        for (int j = 0; j < kMmaColumns * 2; ++j) {
            const int n = first_n + warp_column * kWarpRows + j / 2 * 8 + lane % 4 * 2 + j % 2;
            if (n < N)
                y[static_cast<std::int64_t>(m) * N + n] =
                    (sums.acc[i / 2][j / 2][i % 2 * 2 + j % 2] * kUndoShift) * factor;
        }
    }
}

template <bool kResidual>
void launch(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    const auto kernel = prefill_kernel<kResidual>;
    constexpr int bytes = sizeof(Memory<kResidual>);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    const dim3 grid(row_tiles_bound(M, groups.E, kTile), blocks_for(N, kTile));
    kernel<<<grid, kWarps * kWarp, bytes, stream()>>>(x, residual, w, groups, N, K, y);
    CUDA_CHECK_LAUNCH(prefill_kernel);
}

}  // namespace

void gemm_w4a4_6_prefill(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    if (M == 0 || N == 0) return;
    if (residual != nullptr) return launch<true>(x, *residual, w, groups, M, N, K, y);
    launch<false>(x, x, w, groups, M, N, K, y);
}

}  // namespace quads::kernels::ladder
