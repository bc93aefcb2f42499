// W4A4 GEMM, rung 5: decode, few tokens (1-64). Reading the weights once, at the speed of memory, is the cost to aim
// at: many warps must have much under way, and every instruction per weight counts. New here:
//   - the sum over K may be split (reference::gemm_w4a4_split), so that there are warps enough: each sums one range of
//     K in registers, in ascending order. The ranges lie in the warps of a thread block and in the two thread blocks of
//     a cluster; each writes its sums into the shared memory of the one that owns the rows, which after one barrier
//     adds them in ascending order;
//   - weights come prepacked in fragment order: 16 bytes a lane hold four tiles of 16 rows by one scale block, whose
//     codes cost 9 instructions a tile to decode. Weights are the 16-row operand, tokens the 8-column one, so a decoded
//     tile serves all tokens and the residual, which has columns of its own: up to 4 tokens it adds no instruction;
//   - a thread block decodes the activations of its ranges once, scales folded in, into operands in shared memory;
//   - one launch for all groups: clusters take runs of items (group, tokens, weight rows), empty groups cost nothing;
//   - the kernel may be launched while the previous one ends (programmatic dependent launch).
#include "kernels/device.hpp"
#include "kernels/ladder/decode_operands.cuh"
#include "kernels/ladder/ladder.hpp"
#include "reference/check.hpp"

namespace quads::kernels::ladder {
namespace {

constexpr int kMaxWarps = 16;  // of a thread block

// A lane's sums: rows g and g + 8 of each row tile, the tokens of columns 2t and 2t + 1 of each operand: see
// mma_16x8x16.
template <typename S>
using Sums = float[S::kRowTiles][S::kOperands][2][2 / S::kPasses];

// One step of weights, taken out of the ring.
template <typename S>
struct Step {
    std::uint32_t codes[S::kRowTiles][kStep], scales[S::kRowTiles][kStep / 2];

    __device__ explicit Step(const char* slot) {
#pragma unroll
        for (int i = 0; i < S::kRowTiles; ++i) {
            const char* tile = slot + i * kStepBytes;
            read(tile, codes[i][0], codes[i][1], codes[i][2], codes[i][3]);
            read(tile + kStepCodes / 2, codes[i][4], codes[i][5], codes[i][6], codes[i][7]);
            // Rows g and g + 8 of all blocks; the lanes of a row read the same.
            tile += kStepCodes + lane_id() / 4 * 16 - lane_id() * 16;
            read(tile, scales[i][0], scales[i][1], scales[i][2], scales[i][3]);
        }
    }
    static __device__ void read(const char* from, std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                std::uint32_t& d) {
        const uint4 words = *reinterpret_cast<const uint4*>(from);
        a = words.x, b = words.y, c = words.z, d = words.w;
    }

    // The only rounding: ascending blocks, main before residual, whose columns add to the same sum. x: this lane's
    // operands of the step.
    __device__ void add_to(Sums<S>& sums, const uint4* x) const {
#pragma unroll
        for (int block = 0; block < kStep; ++block) {
#pragma unroll
            for (int i = 0; i < S::kRowTiles; ++i) {
                std::uint32_t w[4];
                decode_fragment(codes[i][block], w);
                const __half2 both =
                    scales_to_half2(static_cast<std::uint16_t>(scales[i][block / 2] >> (block % 2 * 16)));
                const float scale[2] = {__low2float(both), __high2float(both)};  // of rows g and g + 8
#pragma unroll
                for (int operand = 0; operand < S::kOperands; ++operand) {
                    const uint4 pair = x[(block / 2 * S::kOperands + operand) * kWarp];
                    float dot[4];
                    if (block % 2 == 0) mma_16x8x16(w, {pair.x, pair.y}, dot);
                    if (block % 2 == 1) mma_16x8x16(w, {pair.z, pair.w}, dot);
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        float& sum = sums[i][operand][j / 2][j % 2 / S::kPasses];
                        sum = fmaf(dot[j], scale[j / 2], sum);
                    }
                }
            }
        }
    }
};

// A warp's sums, to the thread block of the cluster that owns their rows: [range][token][row].
template <typename S>
__device__ void publish(const Arguments& arguments, const Sums<S>& sums, float* all_sums, int range, int unit) {
    constexpr int kTokens = 2 / S::kPasses;  // of a lane and an operand
    float* mine = all_sums + (range * S::kTokens + lane_id() % 4 * kTokens) * arguments.stride();
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = (unit * S::kRowTiles + i) * kTileRows + half * 8 + lane_id() / 4;
            const int owner = row < arguments.own_rows() ? 0 : 1;
            float* target = mine + row - owner * arguments.own_rows();
#pragma unroll
            for (int operand = 0; operand < S::kOperands; ++operand) {
#pragma unroll
                for (int j = 0; j < kTokens; ++j) {
                    float* address = target + (operand * S::kOperandTokens + j) * arguments.stride();
                    store_to_rank(arguments.cluster > 1, address, owner, sums[i][operand][half][j]);
                }
            }
        }
    }
}

// Adds up the ranges in ascending order and writes this thread block's rows of the item: four rows of a token a thread.
template <typename S>
__device__ void add_ranges(const Arguments& arguments, const Item& item, const float* all_sums, int rank,
                           const Barrier& published) {
    constexpr int kRows = 4;
    const int rows = arguments.own_rows(), stride = arguments.stride(), side_by_side = blockDim.x / (rows / kRows);
    const int first = threadIdx.x / (rows / kRows), row = (threadIdx.x - first * (rows / kRows)) * kRows;
    const int n = item.row_group * arguments.rows + rank * rows + row;
    const float w_outer = arguments.w.outer[item.e];
    bool waiting = true;
    for (int token = first; waiting || token < item.tokens; token += side_by_side) {
        const int m = item.token + min(token, item.tokens - 1);
        const float outer = arguments.x.outer[arguments.x.outer_scale == OuterScale::row ? m : item.e] * w_outer;
        if (waiting) published.wait();
        waiting = false;
        if (token >= item.tokens || n >= arguments.N) continue;
        float sum[kRows] = {};
        const float* from = all_sums + token * stride + row;
#pragma unroll 4
        for (int range = 0; range < arguments.splits; ++range, from += S::kTokens * stride) {
            const float4 part = *reinterpret_cast<const float4*>(from);
            sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
        }
        float* y = arguments.y + static_cast<std::int64_t>(m) * arguments.N + n;
        for (float& value : sum) value = (value * kUndoShift) * outer;
        if (arguments.N % kRows == 0) {
            *reinterpret_cast<float4*>(y) = make_float4(sum[0], sum[1], sum[2], sum[3]);
        } else {
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                if (n + i < arguments.N) y[i] = sum[i];
            }
        }
    }
}

template <typename S>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 1) decode_kernel(const Arguments arguments) {
    extern __shared__ __align__(16) char memory[];
    const int warp = threadIdx.x / kWarp, range = warp / arguments.units, unit = warp - range * arguments.units;
    const int rank = arguments.cluster > 1 ? cluster_rank() : 0, first_range = rank * arguments.ranges;
    char* after_rings = memory + arguments.ranges * arguments.units * S::kSlots * S::kSlotBytes;
    const Staged<S> staged{reinterpret_cast<uint4*>(after_rings), arguments.steps_per_stage * kStep / 2};
    float* all_sums =
        reinterpret_cast<float*>(staged.operands + arguments.ranges * staged.pairs * S::kOperands * kWarp);
    const uint4* first_x = staged.operands + range * staged.pairs * S::kOperands * kWarp + lane_id();

    start_next_kernel();
    if (arguments.groups.E > 1) wait_for_previous_kernel();  // it may have written the offsets
    const int2 run = run_of_items<S>(arguments);
    Item item = find_item<S>(arguments, run.x);
    Fetcher<S> fetcher(arguments, memory, first_range + range, unit, run, item);
    if (arguments.groups.E == 1) wait_for_previous_kernel();

    const Barrier barrier{arguments.cluster > 1};
    if (run.x < run.y) barrier.arrive();  // the other thread block runs: its shared memory may be written
    int filled = 0;                       // ring slots
    int staged_token = -1;                // the activations in shared memory are those from this token on
    for (int i = run.x; i < run.y; ++i) {
        if (i > run.x) item = next_item<S>(arguments, item, i);
        Sums<S> mine = {};
        for (int first = 0; first < arguments.range_steps; first += arguments.steps_per_stage) {
            if (item.token != staged_token || arguments.range_steps > arguments.steps_per_stage) {
                __syncthreads();
                staged.fill(arguments, item, first_range, first, [&] {
                    for (; filled < S::kSlots; ++filled) fetcher.fetch();
                });
                __syncthreads();
                staged_token = item.token;
            }
            const int steps = min(arguments.steps_per_stage, fetcher.steps - first);
            const uint4* x = first_x;
            for (int step = 0; step < steps; ++step, x += kStep / 2 * S::kOperands * kWarp) {
                wait_for_copies<S::kSlots - 1>();
                __syncwarp();  // other lanes' copies too
                const Step<S> weights(fetcher.slot);
                __syncwarp();
                fetcher.fetch();
                weights.add_to(mine, x);
            }
        }
        barrier.wait();  // until the other thread block runs, and has read the sums of the item before
        publish<S>(arguments, mine, all_sums, first_range + range, unit);
        barrier.arrive();
        add_ranges<S>(arguments, item, all_sums, rank, barrier);
        if (i + 1 < run.y) barrier.arrive();
    }
}

int device_attribute(cudaDeviceAttr attribute) {
    int device = 0, value = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
    return value;
}

// What launches ask of the device.
struct Device {
    int multiprocessors, shared_bytes, major;

    static const Device& here() {
        static const Device device{device_attribute(cudaDevAttrMultiProcessorCount),
                                   device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
                                   device_attribute(cudaDevAttrComputeCapabilityMajor)};
        return device;
    }
};

// Launches with leave to overlap the end of the previous kernel; `warps`: at most, of a thread block.
template <typename S>
void launch(Arguments arguments, int warps, int blocks_per_sm) {
    const int E = arguments.groups.E;
    // Decoding many activations twice costs more than the exchange between two thread blocks.
    const bool pays = E == 1 && arguments.splits % 2 == 0 && S::kOperands * arguments.blocks > 256;
    arguments.cluster = pays && Device::here().major >= 9 ? 2 : 1;
    arguments.ranges = arguments.splits / arguments.cluster;
    arguments.units = warps / arguments.ranges;
    const int clusters = Device::here().multiprocessors * blocks_per_sm / arguments.cluster;
    if (E == 1) {  // the clusters take turns with the rows: as few turns as possible, with as few warps as these need
        const int all = (arguments.row_tiles + S::kRowTiles - 1) / S::kRowTiles;
        const int turns = (all + clusters * arguments.units - 1) / (clusters * arguments.units);
        arguments.units = (all + clusters * turns - 1) / (clusters * turns);
    }
    arguments.rows = arguments.units * S::kRowTiles * kTileRows;
    arguments.row_groups = (arguments.N + arguments.rows - 1) / arguments.rows;

    const int used_warps = arguments.ranges * arguments.units, step_bytes = arguments.ranges * S::kStepOperandBytes;
    const int fixed = used_warps * S::kSlots * S::kSlotBytes + arguments.splits * S::kTokens * arguments.stride() * 4;
    const int fitting = ((Device::here().shared_bytes + 1024) / blocks_per_sm - 1024 - fixed) / step_bytes;
    if constexpr (S::kOperands > 1) {
        using Half = Shape<S::kOperands / 2, S::kResidual, S::kRowTiles>;
        if (fitting < 1) return launch<Half>(arguments, warps, blocks_per_sm);
    } else if constexpr (S::kRowTiles > 1) {  // GPUs of 100 KiB
        if (fitting < 1) return launch<Shape<1, S::kResidual, 1>>(arguments, warps, blocks_per_sm);
    }
    check(fitting >= 1, "The decode GEMM has no room for ", arguments.splits, " ranges of K. Pass fewer splits.");
    const int stages = (arguments.range_steps + fitting - 1) / fitting;
    arguments.steps_per_stage = (arguments.range_steps + stages - 1) / stages;
    const int bytes = fixed + arguments.steps_per_stage * step_bytes;
    CUDA_CHECK(cudaFuncSetAttribute(decode_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));

    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t config{};
    const std::int64_t chunks = E == 1 ? (arguments.M + S::kTokens - 1) / S::kTokens
                                       : arguments.M / S::kTokens + (E < arguments.M ? E : arguments.M);
    const std::int64_t items = chunks * arguments.row_groups;
    config.gridDim = dim3(static_cast<unsigned>(items < clusters ? items : clusters) * arguments.cluster);
    config.blockDim = dim3(used_warps * kWarp);
    config.dynamicSmemBytes = bytes;
    config.stream = stream();
    config.attrs = attributes;
    config.numAttrs = arguments.cluster;
    CUDA_CHECK(cudaLaunchKernelEx(&config, decode_kernel<S>, static_cast<const Arguments>(arguments)));
}

// Two row tiles a warp where there are more than warps: they share the activations' loads.
template <int kOperands, bool kResidual>
void launch(const Arguments& arguments) {
    const bool two_blocks = arguments.groups.E > 1 && arguments.splits <= kMaxWarps / 2;
    const int warps = two_blocks ? kMaxWarps / 2 : kMaxWarps, blocks_per_sm = two_blocks ? 2 : 1;
    if constexpr (Shape<kOperands, kResidual, 1>::kTokens <= 16) {
        const int units = warps / arguments.splits, blocks = Device::here().multiprocessors * blocks_per_sm;
        const int E = arguments.groups.E, used_groups = arguments.M < E ? arguments.M : E;
        // For groups: whether enough thread blocks find work then.
        const bool many = E > 1 ? used_groups * ((arguments.row_tiles - 1) / (2 * units) + 1) >= blocks
                                : arguments.row_tiles > blocks * warps / arguments.splits;
        if (many) return launch<Shape<kOperands, kResidual, 2>>(arguments, warps, blocks_per_sm);
    }
    launch<Shape<kOperands, kResidual, 1>>(arguments, warps, blocks_per_sm);
}

}  // namespace

void gemm_w4a4_5_decode_split(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, int splits,
                              float* y) {
    check(splits >= 1 && splits <= kMaxWarps, "The decode GEMM takes 1 to ", kMaxWarps, " splits, but got ", splits,
          ".");
    if (M == 0 || N == 0) return;
    Arguments arguments{};
    arguments.x = x, arguments.residual = residual != nullptr ? *residual : x, arguments.w = w, arguments.y = y;
    arguments.groups = groups, arguments.M = M, arguments.N = N, arguments.blocks = blocks_of(K);
    arguments.splits = splits;
    arguments.row_tiles = (N + kTileRows - 1) / kTileRows;
    arguments.steps = (arguments.blocks + kStep - 1) / kStep;
    arguments.range_steps = split_blocks(K, splits) / kStep;
    const int tokens = groups.E == 1 ? M : 3 * M / (2 * groups.E);  // that most groups do not exceed
    if (residual != nullptr) {
        return tokens <= 4                          ? launch<1, true>(arguments)
               : tokens <= (groups.E == 1 ? 8 : 12) ? launch<2, true>(arguments)
               : tokens <= 16                       ? launch<4, true>(arguments)
                                                    : launch<8, true>(arguments);
    }
    if (tokens <= 8) return launch<1, false>(arguments);
    if (tokens <= 16) return launch<2, false>(arguments);
    if (tokens <= 32) return launch<4, false>(arguments);
    launch<8, false>(arguments);
}

void gemm_w4a4_5_decode(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    gemm_w4a4_5_decode_split(x, residual, w, groups, M, N, K, 1, y);
}

}  // namespace quads::kernels::ladder
