// W4A4 GEMM, rung 8: prefill on Hopper (sm_90a). Rung 6 spends half of its instructions on decoding, because each operand is
// decoded again by every thread block that uses it, and its warps load operands for each mma. New here:
//   - a first kernel decodes x and w once, to FP16 with the scales of w folded in, and the scales of x to floats;
//   - wgmma: four warps multiply 64 tokens by 128 weight rows with one instruction that reads both operands from shared memory
//     by itself. What is left for the warps is the FP32 sum, one fused multiply-add per output and scale block;
//   - two accumulator sets per warp: while one is summed, the tensor cores fill the other. C = 0 as always, so the bits stay.
// Decoded operands lie in shared memory in the 128-byte swizzle that wgmma knows: 16-byte piece c of row r at c ^ (r % 8).
#include "kernels/device.hpp"
#include "kernels/groups.cuh"
#include "kernels/ladder/fragments.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/ladder/pipeline.cuh"
#include "kernels/warp.cuh"
#include "reference/check.hpp"

namespace quads::kernels::ladder {
namespace {

constexpr int kTile = 128;                           // tokens and weight rows of a thread block
constexpr int kThreadsHere = 256;                    // two warpgroups of 64 tokens each
constexpr int kStage = 4;                            // scale blocks of a stage: 64 FP16 numbers, 128 bytes of a row
constexpr int kPieces = 8;                           // 16-byte pieces of a row and stage
constexpr int kSlots = 4;                            // stages in flight
constexpr int kTileBytes = kTile * kPieces * 16;     // one operand of a stage
constexpr int kScaleBytes = kStage * kTile * 4;      // scales of x of a stage, [block][token]

// Scale blocks of a decoded row: whole stages.
__host__ __device__ inline int padded_blocks(int K) { return (blocks_of(K) + kStage - 1) / kStage * kStage; }

// One thread per scale block: q * 2^-14 (times s with `fold`) in the column order 0 4 1 5 2 6 3 7 of each eight. With
// `interleave` 2 a block goes to place 2b + offset: the virtual axis of a residual. Padding becomes zeros.
__global__ void decode_kernel(Nvfp4 q, std::int64_t rows, int blocks, int padded, bool fold, int interleave, int offset,
                              uint4* decoded, float* scales) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, row = i / padded;
    const int block = static_cast<int>(i % padded);
    if (row >= rows) return;
    const bool inside = block < blocks;
    const std::int64_t at = row * blocks + block;
    const uint2 codes = inside ? reinterpret_cast<const uint2*>(q.codes)[at] : make_uint2(0, 0);
    const std::uint8_t scale = inside ? q.scales[at] : std::uint8_t{0};
    const __half2 factor = fold ? __low2half2(scales_to_half2(scale)) : __float2half2_rn(1.0f);
    const std::int64_t place = (row * padded + block) * interleave + offset;
    for (int half = 0; half < 2; ++half) {
        const std::uint32_t word = half == 0 ? codes.x : codes.y;
        decoded[place * 2 + half] = make_uint4(
            multiply_half2(codes_to_half2<0>(word), factor), multiply_half2(codes_to_half2<1>(word), factor),
            multiply_half2(codes_to_half2<2>(word), factor), multiply_half2(codes_to_half2<3>(word), factor));
    }
    if (scales != nullptr) scales[(static_cast<std::int64_t>(block) * interleave + offset) * rows + row] = e4m3_decode(scale);
}

struct Arguments {
    const uint4 *x, *w;       // decoded: [row][x_blocks or w_blocks][2] pieces
    const float* x_scales;    // [x_blocks][M]
    int x_blocks, w_blocks;   // x_blocks is twice w_blocks with a residual
    Groups groups;
    int M, N;
    Nvfp4 x_outer, w_outer;   // for their outer scales
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
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(pending) : "memory");
#pragma unroll
    for (float& value : dot) asm volatile("" : "+f"(value) :: "memory");  // not to be read before
}

#define QUADS_8(d, i) "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]), "=f"(d[i + 6]), "=f"(d[i + 7])

// dot = a * b, 64 x 16 by 16 x 128, C = 0. dot[4 j .. 4 j + 3] are columns 8 j + 2 (lane % 4) and the next, of row lane / 4
// of the warp's 16 rows, then of row lane / 4 + 8.
__device__ inline void multiply(std::uint64_t a, std::uint64_t b, float (&dot)[64]) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,"
        "%61,%62,%63}, %64, %65, p, 1, 1, 0, 0; }"
        : QUADS_8(dot, 0), QUADS_8(dot, 8), QUADS_8(dot, 16), QUADS_8(dot, 24), QUADS_8(dot, 32), QUADS_8(dot, 40),
          QUADS_8(dot, 48), QUADS_8(dot, 56)
        : "l"(a), "l"(b));
}
#undef QUADS_8

// Starts the copies of one operand's stage: rows begin .. end-1 of a matrix with `blocks` decoded blocks a row.
__device__ inline void fetch(char* target, const uint4* source, std::int64_t begin, std::int64_t end, int blocks, int first) {
#pragma unroll
    for (int i = threadIdx.x; i < kTile * kPieces; i += kThreadsHere) {
        const int row = i / kPieces, piece = i % kPieces;
        const bool valid = begin + row < end;
        const std::int64_t at = valid ? ((begin + row) * blocks + first) * 2 + piece : 0;
        copy_16_async(target + row * (kPieces * 16) + (piece ^ row % 8) * 16, source + at, valid);
    }
}

__device__ inline void add_terms(const float (&dot)[64], float upper, float lower, float (&acc)[64]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) acc[i] = fmaf(dot[i], i % 4 < 2 ? upper : lower, acc[i]);
}
#endif

template <bool kResidual>
__global__ void __launch_bounds__(kThreadsHere, 1) prefill_kernel(const Arguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) char memory[];  // kSlots times: x, w, then scales
    char* const w_memory = memory + kSlots * kTileBytes * (kResidual ? 2 : 1);
    float* const scale_memory = reinterpret_cast<float*>(w_memory + kSlots * kTileBytes);
    constexpr int kPasses = kResidual ? 2 : 1;
    const RowTile tokens = find_row_tile(arguments.groups, kTile, blockIdx.x);
    if (tokens.begin >= tokens.end) return;
    const std::int64_t w_begin = static_cast<std::int64_t>(tokens.group) * arguments.N + blockIdx.y * kTile;
    const std::int64_t w_end = static_cast<std::int64_t>(tokens.group + 1) * arguments.N;
    const int stages = arguments.w_blocks / kStage, half = threadIdx.x / 128;

    const auto fetch_stage = [&](int stage) {
        if (stage < stages) {
            const int slot = stage % kSlots;
            for (int part = 0; part < kPasses; ++part) {
                fetch(memory + (slot * kPasses + part) * kTileBytes, arguments.x, tokens.begin, tokens.end, arguments.x_blocks,
                      (stage * kPasses + part) * kStage);
            }
            fetch(w_memory + slot * kTileBytes, arguments.w, w_begin, w_end, arguments.w_blocks, stage * kStage);
            for (int i = threadIdx.x; i < kPasses * kStage * kTile; i += kThreadsHere) {
                const int row = i % kTile, block = stage * kPasses * kStage + i / kTile;
                const bool valid = tokens.begin + row < tokens.end;
                copy_4_async(scale_memory + slot * kPasses * kStage * kTile + i,
                             arguments.x_scales + (valid ? static_cast<std::int64_t>(block) * arguments.M + tokens.begin + row : 0), valid);
            }
        }
        commit_copies();
    };

    float acc[64] = {}, even[64], odd[64];
    for (int stage = 0; stage < kSlots - 2; ++stage) fetch_stage(stage);
    const int row = half * 64 + threadIdx.x % 128 / kWarp * 16 + lane_id() / 4;
    for (int stage = 0; stage < stages; ++stage) {
        fetch_stage(stage + kSlots - 2);  // its slot was last read by the multiplies of stage - 2, which have ended
        wait_for_copies<kSlots - 2>();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads what copies wrote
        __syncthreads();
        const int slot = stage % kSlots;
        const float* scales = scale_memory + slot * kPasses * kStage * kTile + row;
        // Block v of x (main and residual in turn) meets block v / kPasses of w.
        const auto start = [&](int v, float (&dot)[64]) {
            const char* x = memory + (slot * kPasses + v / kStage) * kTileBytes + half * 64 * (kPieces * 16) + v % kStage * 32;
            open_multiplies();
            multiply(describe(x), describe(w_memory + slot * kTileBytes + v / kPasses * 32), dot);
            commit_multiplies();
        };
        start(0, even);
#pragma unroll
        for (int v = 0; v < kPasses * kStage; v += 2) {
            start(v + 1, odd);
            wait_for_multiplies<1>(even);
            add_terms(even, scales[v * kTile], scales[v * kTile + 8], acc);
            if (v + 2 < kPasses * kStage) {
                start(v + 2, even);
                wait_for_multiplies<1>(odd);
            } else {
                wait_for_multiplies<0>(odd);
            }
            add_terms(odd, scales[(v + 1) * kTile], scales[(v + 1) * kTile + 8], acc);
        }
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
                arguments.y[static_cast<std::int64_t>(m) * arguments.N + n] = (acc[j / 2 * 4 + r * 2 + j % 2] * kUndoShift) * factor;
            }
        }
    }
#else
    __trap();  // the launcher lets no other GPU come here
#endif
}

template <bool kResidual>
void launch(Nvfp4 x, Nvfp4 residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    constexpr int kPasses = kResidual ? 2 : 1;
    const int blocks = blocks_of(K), padded = padded_blocks(K);
    const std::int64_t w_rows = static_cast<std::int64_t>(groups.E) * N;
    const Scratch<uint4> decoded_x(static_cast<std::size_t>(M) * padded * kPasses * 2), decoded_w(w_rows * padded * 2);
    const Scratch<float> x_scales(static_cast<std::size_t>(M) * padded * kPasses);
    const std::int64_t x_items = static_cast<std::int64_t>(M) * padded, w_items = w_rows * padded;
    decode_kernel<<<blocks_for(x_items), kThreads, 0, stream()>>>(x, M, blocks, padded, false, kPasses, 0, decoded_x.data(), x_scales.data());
    if (kResidual) {
        decode_kernel<<<blocks_for(x_items), kThreads, 0, stream()>>>(residual, M, blocks, padded, false, 2, 1, decoded_x.data(),
                                                                      x_scales.data());
    }
    decode_kernel<<<blocks_for(w_items), kThreads, 0, stream()>>>(w, w_rows, blocks, padded, true, 1, 0, decoded_w.data(), nullptr);
    CUDA_CHECK_LAUNCH(decode_kernel);

    const Arguments arguments{decoded_x.data(), decoded_w.data(), x_scales.data(), padded * kPasses, padded, groups, M, N, x, w, y};
    constexpr int bytes = kSlots * (kTileBytes * (kPasses + 1) + kPasses * kScaleBytes);
    CUDA_CHECK(cudaFuncSetAttribute(prefill_kernel<kResidual>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    const dim3 grid(row_tiles_bound(M, groups.E, kTile), blocks_for(N, kTile));
    prefill_kernel<kResidual><<<grid, kThreadsHere, bytes, stream()>>>(arguments);
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
