// W4A4 GEMM, rung 7. Blackwell's block-scaled instruction takes packed codes and scale bytes as they lie in memory: 64
// columns, four scale blocks, in one mma.m16n8k64 and no decoding at all.
//
// The kernel is written over an "atom", the instruction or a stand-in with the same fragments:
//   NativeAtom    the instruction, sm_120a only. IT HAS NOT BEEN RUN: no such GPU was at hand. By the published model
//                 it adds the four terms and C at once, with 35 fraction bits, truncated: other bits than the other
//                 rungs.
//   EmulatedAtom  any GPU: the lanes exchange the same registers by shuffles and add term by term, rounded to
//                 nearest, as the other rungs do. It shows that codes and scales reach the right place (test with
//                 distinct scales: the dot of a block does not notice permuted columns, and equal scales hide swapped
//                 blocks).
// A residual is the same GEMM over an interleaved axis of 2K: virtual block 2b is the main block b,
// 2b + 1 its residual.
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/warp.cuh"
#include "reference/check.hpp"
#include "reference/codec.hpp"

namespace quads::kernels::ladder {
namespace {

constexpr int kRows = 16, kColumns = 8, kBlocks = 4;  // of the instruction: rows of x, rows of w, scale blocks
constexpr int kWarps = 4;                             // of a thread block, side by side

// With g = lane / 4 and t = lane % 4, eight codes a register, lowest nibble first:
//   a[0], a[1]  rows g, g + 8 of x, columns 8t ..;  a[2], a[3]  the same rows, columns 32 + 8t ..
//   b[0], b[1]  row g of w, columns 8t .. and 32 + 8t ..
//   x_scales    four bytes, one per block: of row g where t = 0, of row g + 8 where t = 1
//   w_scales    four bytes of row g of w
//   acc         rows g (0, 1) and g + 8 (2, 3), columns 2t and 2t + 1
struct Fragments {
    std::uint32_t a[4], b[2], x_scales, w_scales;
};

struct NativeAtom {
    static __device__ void multiply_add(const Fragments& f, float (&acc)[4]) {
#if defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL)
        asm("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0,0}, {%11}, {0,0};"
            : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
            : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(f.b[0]), "r"(f.b[1]), "r"(f.x_scales),
              "r"(f.w_scales));
#else
        __trap();  // the launcher lets no other GPU come here
#endif
    }
};

struct EmulatedAtom {
    // 4 * the sum of eight products of codes.
    static __device__ int dot4(std::uint32_t x, std::uint32_t w) {
        int sum = 0;
        for (int i = 0; i < 32; i += 4) sum += e2m1_doubled(x >> i & 15u) * e2m1_doubled(w >> i & 15u);
        return sum;
    }

    static __device__ void multiply_add(const Fragments& f, float (&acc)[4]) {
        const int g = lane_id() / 4, t = lane_id() % 4;
        for (int i = 0; i < 4; ++i) {
            const int row = i / 2, column = 2 * t + i % 2;  // row: 0 for g, 1 for g + 8
            const std::uint32_t x_scales = __shfl_sync(kAllLanes, f.x_scales, 4 * g + row);
            const std::uint32_t w_scales = __shfl_sync(kAllLanes, f.w_scales, 4 * column);
            for (int block = 0; block < kBlocks; ++block) {
                int dot = 0;
                for (int half = 0; half < 2; ++half) {  // the lane of a quad that holds this half of the block
                    const int lane = block % 2 * 2 + half;
                    dot += dot4(__shfl_sync(kAllLanes, f.a[block / 2 * 2 + row], 4 * g + lane),
                                __shfl_sync(kAllLanes, f.b[block / 2], 4 * column + lane));
                }
                const float scale = e4m3_decode(x_scales >> (8 * block)) * e4m3_decode(w_scales >> (8 * block));
                acc[i] += (static_cast<float>(dot) * 0.25f) * scale;
            }
        }
    }
};

// One row of an operand along the virtual axis; without a residual, main == residual and stride 1.
struct Row {
    const std::uint8_t *codes[2], *scales[2];
    int interleave, blocks;  // 2 with a residual, else 1; real blocks, 0 for a row outside of the matrix

    __device__ std::uint32_t codes_at(int virtual_block, int half) const {
        const int block = virtual_block / interleave;
        if (block >= blocks) return 0;
        return reinterpret_cast<const std::uint32_t*>(codes[virtual_block % interleave])[block * 2 + half];
    }
    __device__ std::uint32_t four_scales(int first) const {
        std::uint32_t bytes = 0;
        for (int i = 0; i < kBlocks; ++i) {
            const int block = (first + i) / interleave;
            if (block < blocks) bytes |= static_cast<std::uint32_t>(scales[(first + i) % interleave][block]) << (8 * i);
        }
        return bytes;
    }
};

__device__ Row row_of(Nvfp4 main, Nvfp4 residual, int interleave, std::int64_t row, std::int64_t end, int blocks) {
    const std::int64_t at = row < end ? row * blocks : 0;
    return {{main.codes + at * (kBlock / 2), residual.codes + at * (kBlock / 2)},
            {main.scales + at, residual.scales + at},
            interleave,
            row < end ? blocks : 0};
}

template <typename Atom>
__global__ void gemm_kernel(Nvfp4 x, Nvfp4 residual, int interleave, Nvfp4 w, Groups groups, int N, int K, float* y) {
    const RowTile rows = find_row_tile(groups, kRows, blockIdx.x);
    const int g = lane_id() / 4, t = lane_id() % 4, blocks = blocks_of(K);
    const int first_n = (blockIdx.y * kWarps + threadIdx.x / kWarp) * kColumns;
    if (rows.begin >= rows.end || first_n >= N) return;
    const std::int64_t w_begin = static_cast<std::int64_t>(rows.group) * N;
    const Row upper = row_of(x, residual, interleave, rows.begin + g, rows.end, blocks);
    const Row lower = row_of(x, residual, interleave, rows.begin + g + 8, rows.end, blocks);
    const Row column = row_of(w, w, interleave, w_begin + first_n + g, w_begin + N, blocks);

    float acc[4] = {};
    for (int first = 0; first < blocks * interleave; first += kBlocks) {
        const int low = first + t / 2, high = low + kBlocks / 2, half = t % 2;
        const Fragments fragments = {{upper.codes_at(low, half), lower.codes_at(low, half), upper.codes_at(high, half),
                                      lower.codes_at(high, half)},
                                     {column.codes_at(low, half), column.codes_at(high, half)},
                                     t % 2 == 0 ? upper.four_scales(first) : lower.four_scales(first),
                                     column.four_scales(first)};
        Atom::multiply_add(fragments, acc);
    }
    for (int i = 0; i < 4; ++i) {
        const int m = rows.begin + g + i / 2 * 8, n = first_n + 2 * t + i % 2;
        if (m >= rows.end || n >= N) continue;
        const float x_outer = x.outer[x.outer_scale == OuterScale::row ? m : rows.group];
        y[static_cast<std::int64_t>(m) * N + n] = acc[i] * (x_outer * w.outer[rows.group]);
    }
}

template <typename Atom>
void launch(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    if (M == 0 || N == 0) return;
    const dim3 grid(row_tiles_bound(M, groups.E, kRows), blocks_for(N, kColumns * kWarps));
    gemm_kernel<Atom><<<grid, kWarps * kWarp, 0, stream()>>>(x, residual != nullptr ? *residual : x,
                                                             residual != nullptr ? 2 : 1, w, groups, N, K, y);
    CUDA_CHECK_LAUNCH(gemm_kernel);
}

}  // namespace

void gemm_w4a4_7_emulated(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    launch<EmulatedAtom>(x, residual, w, groups, M, N, K, y);
}

void gemm_w4a4_7_native_sm120a(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    int device = 0, major = 0, minor = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    check(major == 12, "The native block-scaled GEMM needs a GPU of compute capability 12.0 or 12.1, but this one has ",
          major, ".", minor, ". Use the emulated rung, which runs on any GPU.");
    launch<NativeAtom>(x, residual, w, groups, M, N, K, y);
}

}  // namespace quads::kernels::ladder
