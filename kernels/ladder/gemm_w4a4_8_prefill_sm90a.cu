// W4A4 GEMM, rung 8: prefill on Hopper (sm_90a). Rung 6 spends half of its instructions on decoding, because each
// operand is decoded again by every thread block that uses it, and its warps load operands for each mma. New here:
//   - a first kernel decodes x and w once, to FP16 with the scales of w folded in, and the scales of x to floats. It
//     writes them as the tiles that shared memory will hold, so that one thread moves a tile with one bulk copy;
//   - wgmma: four warps multiply 64 tokens by 128 weight rows with one instruction that reads both operands from
//     shared memory by itself. What is left for the warps is the FP32 sum, one fused multiply-add per output and
//     scale block;
//   - two sets of dots per warp: while one is summed, the tensor cores fill the other. C = 0 as always, so the bits
//     stay.
// A tile is 128 rows of 64 FP16 numbers in the 128-byte swizzle that wgmma knows: 16-byte piece c of row r lies at
// c ^ (r % 8).
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/fragments.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/warp.cuh"
#include "reference/check.hpp"

namespace quads::kernels::ladder {
namespace {

constexpr int kTile = 128;                        // tokens and weight rows of a thread block
constexpr int kThreadsHere = 256;                 // two warpgroups of 64 tokens each
constexpr int kStage = 4;                         // scale blocks of a stage: 64 FP16 numbers, 128 bytes of a row
constexpr int kPieces = 8;                        // 16-byte pieces of a row and stage
constexpr int kTileBytes = kTile * kPieces * 16;  // one operand of a stage
constexpr int kScaleBytes = kStage * kTile * 4;   // scales of x of a stage, [block][token]

// Stages of a row of K columns.
__host__ __device__ inline int stages_of(int K) { return (blocks_of(K) + kStage - 1) / kStage; }

// Rows begin .. end-1 of tile number `tile` of w: matrix by matrix.
__device__ inline RowTile find_weight_tile(int E, int N, int tile) {
    const int each = (N + kTile - 1) / kTile, e = tile / each, begin = e * N + tile % each * kTile;
    return {e, begin, e < E ? min(begin + kTile, (e + 1) * N) : 0};
}

// One thread per scale block of one tile a thread block row: q * 2^-14, times s for w, in the column order 0 4 1 5 2 6
// 3 7 of each eight. With `interleave` 2 block b goes to place 2b + offset: the virtual axis of a residual. What lies
// outside becomes 0.
__global__ void decode_kernel(Nvfp4 q, Groups groups, int N, bool weights, int blocks, int stages, int interleave,
                              int offset, uint4* tiles, float* scales) {
    const RowTile rows = weights ? find_weight_tile(groups.E, N, blockIdx.y) : find_row_tile(groups, kTile, blockIdx.y);
    if (rows.begin >= rows.end) return;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kTile * stages * kStage; i += gridDim.x * blockDim.x) {
        const int row = i / (stages * kStage), block = i % (stages * kStage), place = block * interleave + offset;
        const bool inside = rows.begin + row < rows.end && block < blocks;
        const std::int64_t at = static_cast<std::int64_t>(rows.begin + row) * blocks + block;
        const uint2 codes = inside ? reinterpret_cast<const uint2*>(q.codes)[at] : make_uint2(0, 0);
        const std::uint8_t scale = inside ? q.scales[at] : std::uint8_t{0};
        const __half2 factor = weights ? __low2half2(scales_to_half2(scale)) : __float2half2_rn(1.0f);
        const std::int64_t stage = static_cast<std::int64_t>(blockIdx.y) * stages * interleave + place / kStage;
        for (int half = 0; half < 2; ++half) {
            const std::uint32_t word = half == 0 ? codes.x : codes.y;
            tiles[(stage * kTile + row) * kPieces + ((place % kStage * 2 + half) ^ row % 8)] = make_uint4(
                multiply_half2(codes_to_half2<0>(word), factor), multiply_half2(codes_to_half2<1>(word), factor),
                multiply_half2(codes_to_half2<2>(word), factor), multiply_half2(codes_to_half2<3>(word), factor));
        }
        if (!weights) scales[(stage * kStage + place % kStage) * kTile + row] = e4m3_decode(scale);
    }
}

struct Arguments {
    const char *x, *w;     // decoded tiles: [tile][stage]; x has twice as many stages with a residual
    const char* x_scales;  // [tile of x][stage][block][token] floats
    int stages;            // of w
    Groups groups;
    int N;
    Nvfp4 x_outer, w_outer;  // for their outer scales
    float* y;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Shared-memory operand for wgmma: K-major, 128-byte swizzle, groups of eight rows 1024 bytes apart.
__device__ inline std::uint64_t describe(const void* shared) {
    const std::uint64_t address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    return (address >> 4 & 0x3FFF) | std::uint64_t{1} << 16 | std::uint64_t{64} << 32 | std::uint64_t{1} << 62;
}

__device__ inline void open_multiplies() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_multiplies() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
__device__ inline void wait_for_multiplies(float (&dot)[64]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
#pragma unroll
    for (float& value : dot) asm volatile("" : "+f"(value)::"memory");  // not to be read before
}

#define QUADS_8(d, i)                                                                                           \
    "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]), "=f"(d[i + 6]), \
        "=f"(d[i + 7])

// dot = a * b, 64 x 16 by 16 x 128, C = 0. dot[4 j .. 4 j + 3] are columns 8 j + 2 (lane % 4) and the next, of row lane
// / 4 of the warp's 16 rows, then of row lane / 4 + 8.
__device__ inline void multiply(std::uint64_t a, std::uint64_t b, float (&dot)[64]) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%"
        "29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%"
        "59,%60,"
        "%61,%62,%63}, %64, %65, p, 1, 1, 0, 0; }"
        : QUADS_8(dot, 0), QUADS_8(dot, 8), QUADS_8(dot, 16), QUADS_8(dot, 24), QUADS_8(dot, 32), QUADS_8(dot, 40),
          QUADS_8(dot, 48), QUADS_8(dot, 56)
        : "l"(a), "l"(b));
}
#undef QUADS_8

// mbarriers: a phase ends after `count` arrivals and the bytes of all copies announced in it.
__device__ inline std::uint32_t shared_address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ inline void make_barrier(std::uint64_t* barrier, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ inline void arrive(std::uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void arrive_and_expect(std::uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
__device__ inline void wait_for(std::uint64_t* barrier, int phase) {
    std::uint32_t done = 0;
    while (done == 0) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(phase)
                     : "memory");
    }
}
__device__ inline void copy_in_bulk(void* shared, const void* global, int bytes, std::uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ inline void add_terms(const float (&dot)[64], float upper, float lower, float (&acc)[64]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) acc[i] = fmaf(dot[i], i % 4 < 2 ? upper : lower, acc[i]);
}
#endif

template <bool kResidual>
struct Slots {
    static constexpr int kPasses = kResidual ? 2 : 1, kCount = kResidual ? 4 : 6;
    static constexpr int kX = kPasses * kTileBytes, kScales = kPasses * kScaleBytes, kBytes = kX + kTileBytes + kScales;
};

template <bool kResidual>
__global__ void __launch_bounds__(kThreadsHere, 1) prefill_kernel(const Arguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = Slots<kResidual>;
    extern __shared__ __align__(1024) char memory[];  // all tiles of x, all of w, then scales
    __shared__ std::uint64_t full[S::kCount], empty[S::kCount];
    const RowTile tokens = find_row_tile(arguments.groups, kTile, blockIdx.x);
    if (tokens.begin >= tokens.end) return;
    char* const w_memory = memory + S::kCount * S::kX;
    char* const scale_memory = w_memory + S::kCount * kTileBytes;
    const int stages = arguments.stages, half = threadIdx.x / 128;
    const std::int64_t w_tile = static_cast<std::int64_t>(tokens.group) * gridDim.y + blockIdx.y;

    const auto fetch = [&](int stage) {  // by one thread
        const int slot = stage % S::kCount;
        const std::int64_t x_stage = static_cast<std::int64_t>(blockIdx.x) * stages + stage;
        arrive_and_expect(&full[slot], S::kBytes);
        copy_in_bulk(memory + slot * S::kX, arguments.x + x_stage * S::kX, S::kX, &full[slot]);
        copy_in_bulk(w_memory + slot * kTileBytes, arguments.w + (w_tile * stages + stage) * kTileBytes, kTileBytes,
                     &full[slot]);
        copy_in_bulk(scale_memory + slot * S::kScales, arguments.x_scales + x_stage * S::kScales, S::kScales,
                     &full[slot]);
    };
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < S::kCount; ++slot) {
            make_barrier(&full[slot], 1);
            make_barrier(&empty[slot], kThreadsHere / kWarp);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int stage = 0; stage < S::kCount && stage < stages; ++stage) fetch(stage);
    }
    __syncthreads();

    float acc[64] = {}, even[64], odd[64];
    const int row = half * 64 + threadIdx.x % 128 / kWarp * 16 + lane_id() / 4;
    for (int stage = 0; stage < stages; ++stage) {
        const int slot = stage % S::kCount;
        // The slot before the last is refilled now, so that neither warpgroup waits for the other to finish this very
        // stage.
        if (threadIdx.x == 0 && stage >= 2 && stage - 2 + S::kCount < stages) {
            wait_for(&empty[(stage - 2) % S::kCount], (stage - 2) / S::kCount % 2);
            fetch(stage - 2 + S::kCount);
        }
        __syncwarp();
        wait_for(&full[slot], stage / S::kCount % 2);
        const float* scales = reinterpret_cast<const float*>(scale_memory + slot * S::kScales) + row;
        // Block v of x (main and residual in turn) meets block v / kPasses of w.
        const auto start = [&](int v, float(&dot)[64]) {
            const char* x =
                memory + slot * S::kX + v / kStage * kTileBytes + half * 64 * (kPieces * 16) + v % kStage * 32;
            open_multiplies();
            multiply(describe(x), describe(w_memory + slot * kTileBytes + v / S::kPasses * 32), dot);
            commit_multiplies();
        };
        start(0, even);
#pragma unroll
        for (int v = 0; v < S::kPasses * kStage; v += 2) {
            start(v + 1, odd);
            wait_for_multiplies<1>(even);
            add_terms(even, scales[v * kTile], scales[v * kTile + 8], acc);
            if (v + 2 < S::kPasses * kStage) {
                start(v + 2, even);
                wait_for_multiplies<1>(odd);
            } else {
                wait_for_multiplies<0>(odd);
            }
            add_terms(odd, scales[(v + 1) * kTile], scales[(v + 1) * kTile + 8], acc);
        }
        __syncwarp();
        if (lane_id() == 0) arrive(&empty[slot]);
    }

    const float w_outer = arguments.w_outer.outer[tokens.group];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int m = tokens.begin + row + r * 8;
        if (m >= tokens.end) continue;
        const Nvfp4& x = arguments.x_outer;
        const float factor = x.outer[x.outer_scale == OuterScale::row ? m : tokens.group] * w_outer;
#pragma unroll
        for (int j = 0; j < 32; ++j) {
            const int n = blockIdx.y * kTile + j / 2 * 8 + lane_id() % 4 * 2 + j % 2;
            if (n < arguments.N) {
                arguments.y[static_cast<std::int64_t>(m) * arguments.N + n] =
                    (acc[j / 2 * 4 + r * 2 + j % 2] * kUndoShift) * factor;
            }
        }
    }
#else
    __trap();  // the launcher lets no other GPU come here
#endif
}

template <bool kResidual>
void launch(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    using S = Slots<kResidual>;
    const int blocks = blocks_of(K), stages = stages_of(K);
    const std::size_t x_tiles = row_tiles_bound(M, groups.E, kTile), n_tiles = blocks_for(N, kTile),
                      w_tiles = groups.E * n_tiles;
    const Scratch<char> tiles_x(x_tiles * stages * S::kX), scales_x(x_tiles * stages * S::kScales),
        tiles_w(w_tiles * stages * kTileBytes);
    const auto decode = [&](const Nvfp4& q, bool weights, int interleave, int offset, char* tiles) {
        const dim3 grid(blocks_for(kTile * stages * kStage, kThreads * 4),
                        static_cast<unsigned>(weights ? w_tiles : x_tiles));
        decode_kernel<<<grid, kThreads, 0, stream()>>>(q, groups, N, weights, blocks, stages, interleave, offset,
                                                       reinterpret_cast<uint4*>(tiles),
                                                       reinterpret_cast<float*>(scales_x.data()));
        CUDA_CHECK_LAUNCH(decode_kernel);
    };
    decode(x, false, S::kPasses, 0, tiles_x.data());
    if (kResidual) decode(residual, false, S::kPasses, 1, tiles_x.data());
    decode(w, true, 1, 0, tiles_w.data());

    const Arguments arguments{tiles_x.data(), tiles_w.data(), scales_x.data(), stages, groups, N, x, w, y};
    constexpr int bytes = S::kCount * S::kBytes;
    CUDA_CHECK(cudaFuncSetAttribute(prefill_kernel<kResidual>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    prefill_kernel<kResidual>
        <<<dim3(static_cast<unsigned>(x_tiles), static_cast<unsigned>(n_tiles)), kThreadsHere, bytes, stream()>>>(
            arguments);
    CUDA_CHECK_LAUNCH(prefill_kernel);
}

}  // namespace

void gemm_w4a4_8_prefill_sm90a(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    int device = 0, major = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    check(major == 9, "This prefill GEMM needs a GPU of compute capability 9.0, but this one has ", major,
          ".x. Use gemm_w4a4_6_prefill, which runs on any GPU.");
    if (M == 0 || N == 0) return;
    if (residual != nullptr) return launch<true>(x, *residual, w, groups, M, N, K, y);
    launch<false>(x, x, w, groups, M, N, K, y);
}

}  // namespace quads::kernels::ladder
