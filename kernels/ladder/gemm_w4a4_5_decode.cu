// W4A4 GEMM, rung 5: decode, few tokens (1-64). Reading the weights once, at the speed of memory, is the cost to aim
// at, so every instruction per weight counts. New here:
//   - one warp owns 8 weight rows from the first column to the last: its sums run in ascending order in registers,
//     without a split over K and without any exchange between warps. Tokens are the 16-row operand, weights the
//     8-column one;
//   - weights come prepacked in fragment order through a ring of asynchronous copies per warp: 16 bytes a lane hold
//     eight scale blocks, whose codes cost 4.5 instructions a block to decode;
//   - the warps of a thread block share the activations, decoded once into operands in shared memory;
//   - the dots of a step are computed while the ones of the step before are summed;
//   - one launch for all groups: thread blocks take runs of items (group, tokens, weight rows), empty groups cost
//     nothing;
//   - a residual fills the rows of the 16-row operand that eight tokens leave empty, so it costs no tensor work;
//   - the kernel may start while the previous one ends (programmatic dependent launch) and fetches weights meanwhile.
//     So the weights must be complete before the previous kernel on the stream starts; all other inputs may come from
//     it.
#include "kernels/device.hpp"
#include "kernels/ladder/decode_items.cuh"
#include "kernels/ladder/fragments.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/ladder/pipeline.cuh"
#include "kernels/warp.cuh"

namespace quads::kernels::ladder {
namespace {

constexpr int kTileRows = 8;  // weight rows of a warp
constexpr int kStep = 8;      // scale blocks of a step
constexpr int kStepCodes = kStep * 64, kStepScales = kStep * kTileRows, kSlotBytes = kStepCodes + kStepScales;
constexpr int kMaxWarps = 16;  // of a thread block

// What the 16 rows of the activation operand hold.
enum class Rows {
    half,      // 8 tokens, the rest is 0
    full,      // 16 tokens
    residual,  // 8 tokens, then their residuals
};

// What the compiler must know: the use of the rows, how many such operands, and the ring slots of a warp.
template <Rows kRows_, int kOperands_, int kSlots_>
struct Shape {
    static constexpr Rows kRows = kRows_;
    static constexpr int kOperands = kOperands_, kSlots = kSlots_;
    static constexpr int kTokensEach = kRows == Rows::full ? 16 : 8, kTokens = kOperands * kTokensEach;
    static constexpr int kSums = kRows == Rows::full ? 4 : 2;        // of a lane and operand
    static constexpr int kUnitBlocks = kRows == Rows::half ? 2 : 1;  // scale blocks in 16 bytes of a lane
    static constexpr int kUnits = kStep / kUnitBlocks;               // of a step
    static constexpr int kParts = kOperands;  // of a step, so that two sets of dots fit registers
    static constexpr int kPartBlocks = kStep / kParts;
};

struct Arguments {
    Nvfp4 x, residual, w;
    Groups groups;
    int M, N, blocks;
    int workers;          // warps of a thread block that own weight rows; all warps decode activations
    int steps_per_stage;  // steps whose activations fit into shared memory
    float* y;

    __host__ __device__ int row_tiles() const { return (N + kTileRows - 1) / kTileRows; }
    __host__ __device__ int row_groups() const { return (row_tiles() + workers - 1) / workers; }
    __host__ __device__ int steps() const { return (blocks + kStep - 1) / kStep; }
};

template <typename S>
__device__ Item find_item(const Arguments& arguments, int i) {
    int ignored;
    return find_group_item(arguments.groups, arguments.M, S::kTokens, arguments.row_groups(), i, &ignored);
}

// The item number i, which follows `before`.
template <typename S>
__device__ Item next_item(const Arguments& arguments, Item before, int i) {
    if (++before.row_group < arguments.row_groups()) return before;
    return find_item<S>(arguments, i);
}

// The run of items of this thread block: first .. end - 1.
template <typename S>
__device__ int2 run_of_items(const Arguments& arguments) {
    int items;
    find_group_item(arguments.groups, arguments.M, S::kTokens, arguments.row_groups(), -1, &items);
    const std::int64_t block = blockIdx.x, blocks = gridDim.x;
    return make_int2(static_cast<int>(items * block / blocks), static_cast<int>(items * (block + 1) / blocks));
}

// A warp's way through its weights: the steps of one item, then those of the next.
template <typename S>
struct Fetcher {
    const Arguments& arguments;
    char *ring, *slot;                   // this lane's part of the codes in the first and in the oldest slot
    int worker, steps, item, end, step;  // item, step: the next to fetch
    Item found;                          // what is known of that item
    int scales_at;                       // this lane's scales of a slot, seen from its codes
    bool inside, has_scales;  // whether this item has a row tile for this warp; whether this lane fetches scales
    const std::uint8_t *codes, *scales;  // of the next step

    __device__ Fetcher(const Arguments& arguments, char* memory, int worker, int2 run)
        : arguments(arguments),
          ring(memory + worker * S::kSlots * kSlotBytes + lane_id() * 16),
          slot(ring),
          worker(worker),
          steps(arguments.steps()),
          item(run.x),
          end(run.y),
          step(0),
          found(find_item<S>(arguments, run.x)),
          scales_at(kStepCodes + lane_id() % 4 * 16 - lane_id() * 16),
          has_scales(lane_id() < kStepScales / 16) {
        enter();
    }

    __device__ void enter() {
        const int row_tile = found.row_group * arguments.workers + worker;
        inside = item < end && row_tile < arguments.row_tiles();
        const std::int64_t base =
            inside ? (static_cast<std::int64_t>(found.e) * arguments.row_tiles() + row_tile) * steps : 0;
        codes = arguments.w.codes + base * kStepCodes + lane_id() * 16;
        scales = arguments.w.scales + base * kStepScales + lane_id() % 4 * 16;
    }

    // Starts the copy of one step into the oldest slot; without weights left it only closes an empty group of copies.
    __device__ void fetch() {
        if (inside) {
            copy_16_async(slot, codes, true);
            if (has_scales) copy_16_async(slot + scales_at, scales, true);
        }
        commit_copies();
        codes += kStepCodes;
        scales += kStepScales;
        slot = slot < ring + (S::kSlots - 1) * kSlotBytes ? slot + kSlotBytes : ring;
        if (++step < steps) return;
        step = 0;
        if (++item > end) return;
        if (item < end) found = next_item<S>(arguments, found, item);
        enter();
    }
};

// The activations in shared memory, [operand][unit][lane] 16 bytes: q * s * 2^-14 as FP16. A unit is the 16-row operand
// of one instruction: one block of 16 tokens (full), or of 8 tokens and their residuals. With 8 tokens (half) rows 8-15
// hold the block after the one in rows 0-7; each of the two is multiplied with its weights, and the other half of the
// result ignored.
template <typename S>
struct Staged {
    uint4* operands;
    int units;

    // Decodes from block `first` of the matrices on; zeros outside. The whole thread block calls it.
    __device__ void fill(const Arguments& arguments, const Item& item, int first) const {
        for (int i = threadIdx.x; i < S::kOperands * units * 8; i += blockDim.x) {
            const int g = i % 8, unit = i / 8 % units, token = i / 8 / units * S::kTokensEach + g;
            const int block = first + unit * S::kUnitBlocks;
            const Nvfp4& second = S::kRows == Rows::residual ? arguments.residual : arguments.x;
            uint2 a = make_uint2(0, 0), b = a;
            std::uint32_t scales = load(arguments, arguments.x, item, token, block, a);
            scales |= load(arguments, second, item, token + (S::kRows == Rows::full ? 8 : 0),
                           block + (S::kRows == Rows::half ? 1 : 0), b)
                      << 8;
            const __half2 both = scales_to_half2(static_cast<std::uint16_t>(scales));
            // Bytes 0 and 1, or 2 and 3, of a and b interleaved: see four_codes_to_half2.
            uint4* target = operands + i * 4;
            target[0] = decode(__byte_perm(a.x, b.x, 0x5140), both);
            target[1] = decode(__byte_perm(a.x, b.x, 0x7362), both);
            target[2] = decode(__byte_perm(a.y, b.y, 0x5140), both);
            target[3] = decode(__byte_perm(a.y, b.y, 0x7362), both);
        }
    }

    // The scale byte and the codes of one block of one token.
    static __device__ std::uint32_t load(const Arguments& arguments, const Nvfp4& q, const Item& item, int token,
                                         int block, uint2& codes) {
        if (token >= item.tokens || block >= arguments.blocks) return 0;
        const std::int64_t at = static_cast<std::int64_t>(item.token + token) * arguments.blocks + block;
        codes = reinterpret_cast<const uint2*>(q.codes)[at];
        return q.scales[at];
    }

    static __device__ uint4 decode(std::uint32_t codes, __half2 scales) {
        const __half2 first = __low2half2(scales), second = __high2half2(scales);
        return make_uint4(
            multiply_half2(codes_to_half2<0>(codes), first), multiply_half2(codes_to_half2<2>(codes), second),
            multiply_half2(codes_to_half2<1>(codes), first), multiply_half2(codes_to_half2<3>(codes), second));
    }
};

// Exact dots of one part of a step with the scales of x, and the scales of this lane's two weight rows.
template <typename S>
struct Dots {
    float dot[S::kPartBlocks][S::kOperands][4];
    __half2 scales[S::kPartBlocks];

    // `codes` and `scale_bytes` are this lane's of the step in shared memory, x its piece of the part's first unit.
    template <int part>
    __device__ void compute(const char* codes, const char* scale_bytes, const uint4* x, int operand_stride) {
        const uint4 words = *reinterpret_cast<const uint4*>(codes),
                    bytes = *reinterpret_cast<const uint4*>(scale_bytes);
        const std::uint32_t word[4] = {words.x, words.y, words.z, words.w},
                            two[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
        for (int i = 0; i < S::kPartBlocks; i += 2) {
            const int pair = (part * S::kPartBlocks + i) / 2;
            scales[i] = scales_to_half2(static_cast<std::uint16_t>(two[pair]));
            scales[i + 1] = scales_to_half2(static_cast<std::uint16_t>(two[pair] >> 16));
            std::uint32_t w[4];  // block i: 0 and 2, block i + 1: 1 and 3
            decode_fragment(word[pair], w);
#pragma unroll
            for (int operand = 0; operand < S::kOperands; ++operand) {
                const uint4* unit = x + operand * operand_stride + i / S::kUnitBlocks * kWarp;
                const uint4 a = unit[0], b = S::kRows == Rows::half ? a : unit[kWarp];
                mma_16x8x16({a.x, a.y, a.z, a.w}, {w[0], w[2]}, dot[i][operand]);
                mma_16x8x16({b.x, b.y, b.z, b.w}, {w[1], w[3]}, dot[i + 1][operand]);
            }
        }
    }

    // The only rounding: ascending blocks, main before residual. Of each result 0 and 1 belong to row g of the operand
    // and the lane's two weight rows, 2 and 3 to row g + 8.
    __device__ void add_to(float (&acc)[S::kOperands][S::kSums]) const {
#pragma unroll
        for (int i = 0; i < S::kPartBlocks; ++i) {
            const float scale[2] = {__low2float(scales[i]), __high2float(scales[i])};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (S::kRows == Rows::half && j / 2 != i % 2) continue;
#pragma unroll
                for (int operand = 0; operand < S::kOperands; ++operand) {
                    float& sum = acc[operand][S::kRows == Rows::full ? j : j % 2];
                    sum = fmaf(dot[i][operand][j], scale[j % 2], sum);
                }
            }
        }
    }
};

template <typename S>
__device__ void store(const Arguments& arguments, const Item& item, int row_tile,
                      const float (&acc)[S::kOperands][S::kSums]) {
    const float w_outer = arguments.w.outer[item.e];
#pragma unroll
    for (int operand = 0; operand < S::kOperands; ++operand) {
#pragma unroll
        for (int j = 0; j < S::kSums; ++j) {
            const int n = row_tile * kTileRows + lane_id() % 4 * 2 + j % 2;
            const int token = operand * S::kTokensEach + lane_id() / 4 + j / 2 * 8, m = item.token + token;
            if (n >= arguments.N || token >= item.tokens) continue;
            const float x_outer = arguments.x.outer[arguments.x.outer_scale == OuterScale::row ? m : item.e];
            arguments.y[static_cast<std::int64_t>(m) * arguments.N + n] =
                (acc[operand][j] * kUndoShift) * (x_outer * w_outer);
        }
    }
}

// The dots of one more part of the weights under way; the slot of a finished step is refilled. `half`: 1 for odd parts.
// x moves on to the next part.
template <int half, typename S>
__device__ void next_dots(Fetcher<S>& fetcher, const uint4*& x, int operand_stride, Dots<S>& dots) {
    constexpr int part_of_step = S::kParts == 2 ? half : 0;
    if (part_of_step == 0) {
        wait_for_copies<S::kSlots - 1>();
        __syncwarp();  // other lanes' copies too
    }
    dots.template compute<part_of_step>(fetcher.slot, fetcher.slot + fetcher.scales_at, x, operand_stride);
    x += S::kUnits / S::kParts * kWarp;
    if (part_of_step == S::kParts - 1) {
        __syncwarp();
        fetcher.fetch();
    }
}

// acc += the dots of `steps` steps; two sets of dots take turns.
template <typename S>
__device__ void sum_steps(Fetcher<S>& fetcher, const Staged<S>& staged, int steps,
                          float (&acc)[S::kOperands][S::kSums]) {
    Dots<S> even, odd;
    const int parts = steps * S::kParts, stride = staged.units * kWarp;
    const uint4* x = staged.operands + lane_id();
    next_dots<0>(fetcher, x, stride, even);
    int part = 1;
    for (; part + 1 < parts; part += 2) {
        next_dots<1>(fetcher, x, stride, odd);
        even.add_to(acc);
        next_dots<0>(fetcher, x, stride, even);
        odd.add_to(acc);
    }
    if (part < parts) next_dots<1>(fetcher, x, stride, odd);
    even.add_to(acc);
    if (part < parts) odd.add_to(acc);
}

template <typename S>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 1) decode_kernel(const Arguments arguments) {
    extern __shared__ __align__(16) char memory[];
    const int warp = threadIdx.x / kWarp, steps = arguments.steps();
    const bool works = warp < arguments.workers;
    const Staged<S> staged{reinterpret_cast<uint4*>(memory + arguments.workers * S::kSlots * kSlotBytes),
                           arguments.steps_per_stage * S::kUnits};

    start_next_kernel();
    if (arguments.groups.E > 1) wait_for_previous_kernel();  // it may have written the offsets
    const int2 run = run_of_items<S>(arguments);
    Fetcher<S> fetcher(arguments, memory, warp, works ? run : make_int2(run.x, run.x));
    for (int slot = 0; works && slot < S::kSlots; ++slot) fetcher.fetch();
    if (arguments.groups.E == 1) wait_for_previous_kernel();

    int staged_token = -1;  // the activations in shared memory are those from this token on
    Item item = find_item<S>(arguments, run.x);
    for (int i = run.x; i < run.y; ++i) {
        if (i > run.x) item = next_item<S>(arguments, item, i);
        float acc[S::kOperands][S::kSums] = {};
        for (int first = 0; first < steps; first += arguments.steps_per_stage) {
            if (item.token != staged_token || steps > arguments.steps_per_stage) {
                __syncthreads();
                staged.fill(arguments, item, first * kStep);
                __syncthreads();
                staged_token = item.token;
            }
            if (works) sum_steps<S>(fetcher, staged, min(arguments.steps_per_stage, steps - first), acc);
        }
        if (works) store<S>(arguments, item, item.row_group * arguments.workers + warp, acc);
    }
}

int multiprocessors() {
    static const int count = [] {
        int device = 0, value = 0;
        CUDA_CHECK(cudaGetDevice(&device));
        CUDA_CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
        return value;
    }();
    return count;
}

// Launches with leave to overlap the end of the previous kernel.
template <typename S>
void launch(Arguments arguments, int workers, int blocks_per_sm) {
    arguments.workers = workers;
    const int warps = kMaxWarps / blocks_per_sm, ring = workers * S::kSlots * kSlotBytes;
    const int step_bytes = S::kOperands * S::kUnits * kWarp * 16, room = 226 * 1024 / blocks_per_sm - 1024 - ring;
    const int steps = arguments.steps(), fitting = room / step_bytes, stages = (steps + fitting - 1) / fitting;
    arguments.steps_per_stage = (steps + stages - 1) / stages;
    const int bytes = ring + arguments.steps_per_stage * step_bytes;
    CUDA_CHECK(cudaFuncSetAttribute(decode_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));

    const int E = arguments.groups.E;
    const std::int64_t chunks = E == 1 ? (arguments.M + S::kTokens - 1) / S::kTokens
                                       : arguments.M / S::kTokens + (E < arguments.M ? E : arguments.M);
    const std::int64_t items = chunks * arguments.row_groups(), resident = multiprocessors() * blocks_per_sm;
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(items < resident ? items : resident));
    config.blockDim = dim3(warps * kWarp);
    config.dynamicSmemBytes = bytes;
    config.stream = stream();
    config.attrs = &overlap;
    config.numAttrs = 1;
    CUDA_CHECK(cudaLaunchKernelEx(&config, decode_kernel<S>, static_cast<const Arguments>(arguments)));
}

// A worker for each row tile of a multiprocessor's share. More ring slots than these made nothing faster on an H200.
template <Rows kRows, int kOperands>
void launch(const Arguments& arguments) {
    if (arguments.groups.E > 1) return launch<Shape<kRows, kOperands, 6>>(arguments, kMaxWarps / 2, 2);
    const int each = (arguments.row_tiles() + multiprocessors() - 1) / multiprocessors();
    launch<Shape<kRows, kOperands, 8>>(arguments, each < kMaxWarps ? each : kMaxWarps, 1);
}

}  // namespace

void gemm_w4a4_5_decode(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    if (M == 0 || N == 0) return;
    const Arguments arguments{x, residual != nullptr ? *residual : x, w, groups, M, N, blocks_of(K), 0, 0, y};
    const int tokens = groups.E == 1 ? M : (M + groups.E - 1) / groups.E;  // of a typical group
    if (residual != nullptr)
        return tokens <= 8 ? launch<Rows::residual, 1>(arguments) : launch<Rows::residual, 2>(arguments);
    if (tokens <= 8) return launch<Rows::half, 1>(arguments);
    if (tokens <= 16) return launch<Rows::full, 1>(arguments);
    launch<Rows::full, 2>(arguments);
}

}  // namespace quads::kernels::ladder
