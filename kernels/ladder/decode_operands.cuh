// The two operands of the decode kernel (gemm_w4a4_5_decode.cu) on their way into fragments: weights through a ring of
// asynchronous copies for each warp, activations decoded once into shared memory; and the order of the work.
#pragma once

#include "kernels/ladder/decode_items.cuh"
#include "kernels/ladder/fragments.cuh"
#include "kernels/ladder/pipeline.cuh"
#include "kernels/warp.cuh"

namespace quads::kernels::ladder {

constexpr int kTileRows = 16;  // weight rows of one instruction
constexpr int kStep = 8;       // scale blocks of a step; ranges are whole steps
constexpr int kStepCodes = kStep * kTileRows * kBlock / 2, kStepScales = kStep * kTileRows;
constexpr int kStepBytes = kStepCodes + kStepScales;

// What the compiler must know: the 8-column operands of an item, whether there is a residual, and the row tiles of a
// warp. With a residual a token has two neighbouring columns, main and residual, so that a lane gets both dots.
template <int kOperands_, bool kResidual_, int kRowTiles_>
struct Shape {
    static constexpr bool kResidual = kResidual_;
    static constexpr int kOperands = kOperands_, kPasses = kResidual ? 2 : 1, kRowTiles = kRowTiles_;
    static constexpr int kOperandTokens = 8 / kPasses, kTokens = kOperands * kOperandTokens;
    static constexpr int kSlots = kRowTiles == 1 && kOperands <= 4 ? 3 : 2, kSlotBytes = kRowTiles * kStepBytes;
    static constexpr int kStepOperandBytes = kOperands * kStep / 2 * kWarp * 16;  // activations of a step and a range
};

struct Arguments {
    Nvfp4 x, residual, w;
    Groups groups;
    int M, N, blocks, splits;
    float* y;
    int cluster;        // thread blocks of a cluster, each with `ranges` ranges of K
    int ranges, units;  // a thread block has a warp for each range and each of `units` sets of kRowTiles row tiles
    int rows;           // of an item
    int row_tiles, row_groups, steps, range_steps;  // of a matrix in tiles and items; of a row and a range in steps
    int steps_per_stage;                            // steps of each range whose activations fit into shared memory

    // Rows of an item that a thread block of the cluster adds up and writes.
    __host__ __device__ int own_rows() const { return rows / cluster; }
    // Floats from token to token in the sums of a range: the 4 spread a warp's tokens over the banks.
    __host__ __device__ int stride() const { return own_rows() + 4; }
};

template <typename S>
__device__ Item find_item(const Arguments& arguments, int i) {
    if (arguments.groups.E == 1 && arguments.M <= S::kTokens) return {0, 0, arguments.M, i};
    int ignored;
    return find_group_item(arguments.groups, arguments.M, S::kTokens, arguments.row_groups, i, &ignored);
}

// The item number i, which follows `before`.
template <typename S>
__device__ Item next_item(const Arguments& arguments, Item before, int i) {
    if (++before.row_group < arguments.row_groups) return before;
    return find_item<S>(arguments, i);
}

// The run of items of this cluster: first .. end - 1.
template <typename S>
__device__ int2 run_of_items(const Arguments& arguments) {
    int items = arguments.row_groups;
    if (arguments.groups.E > 1 || arguments.M > S::kTokens)
        find_group_item(arguments.groups, arguments.M, S::kTokens, arguments.row_groups, -1, &items);
    const int cluster = blockIdx.x / arguments.cluster, clusters = gridDim.x / arguments.cluster;
    const int each = items / clusters, longer = items - each * clusters;  // the first clusters take one more
    const int first = each * cluster + min(cluster, longer);
    return make_int2(first, first + each + (cluster < longer ? 1 : 0));
}

// A warp's way through its weights: the steps of its range for one item, then for the next.
template <typename S>
struct Fetcher {
    const Arguments& arguments;
    char *ring, *slot;                             // this lane's 16 bytes of the first and of the oldest slot
    int unit, first_step, steps, item, end, step;  // item, step: the next to fetch
    Item found;                                    // what is known of that item
    int tiles;                                     // row tiles of that item that exist, at most kRowTiles
    const std::uint8_t *codes, *scales;            // of the next step

    // `first`: the first item of the run.
    __device__ Fetcher(const Arguments& arguments, char* memory, int range, int unit, int2 run, const Item& first)
        : arguments(arguments),
          ring(memory + threadIdx.x / kWarp * S::kSlots * S::kSlotBytes + lane_id() * 16),
          slot(ring),
          unit(unit),
          first_step(range * arguments.range_steps),
          steps(max(0, min(arguments.range_steps, arguments.steps - first_step))),
          item(run.x),
          end(run.y),
          step(0),
          found(first) {
        enter();
    }

    __device__ void enter() {
        const int first = (found.row_group * arguments.units + unit) * S::kRowTiles;
        tiles = item < end && steps > 0 ? arguments.row_tiles - first : 0;
        const std::int64_t tile = static_cast<std::int64_t>(found.e) * arguments.row_tiles + first,
                           at = tiles > 0 ? tile * arguments.steps + first_step : 0;
        codes = arguments.w.codes + at * kStepCodes + lane_id() * 16;
        scales = arguments.w.scales + at * kStepScales + lane_id() * 16;
    }

    // Starts the copy of one step into the oldest slot; without weights left it only closes an empty group of copies.
    __device__ void fetch() {
#pragma unroll
        for (int i = 0; i < S::kRowTiles; ++i) {
            const std::int64_t tile = static_cast<std::int64_t>(i) * arguments.steps;
            char* target = slot + i * kStepBytes;
            copy_16_async(i < tiles, target, codes + tile * kStepCodes);
            copy_16_async(i < tiles, target + kStepCodes / 2, codes + tile * kStepCodes + kStepCodes / 2);
            copy_16_async(i < tiles && lane_id() < kStepScales / 16, target + kStepCodes, scales + tile * kStepScales);
        }
        commit_copies();
        codes += kStepCodes;
        scales += kStepScales;
        slot = slot < ring + (S::kSlots - 1) * S::kSlotBytes ? slot + S::kSlotBytes : ring;
        if (++step < steps) return;
        step = 0;
        if (++item > end) return;
        if (item < end) found = next_item<S>(arguments, found, item);
        enter();
    }
};

// The activations in shared memory, [range][pair of blocks][operand][lane] 16 bytes: q * s * 2^-14 as FP16, the
// 8-column operands of two scale blocks.
template <typename S>
struct Staged {
    uint4* operands;
    int pairs;  // of a range

    // What a thread of a thread block takes: two blocks of a column of one operand of one range, then the next.
    struct Place {
        int row, pair;  // row: range * kOperands + operand

        __device__ explicit Place(int pairs) : row(threadIdx.x / 8 / pairs), pair(threadIdx.x / 8 - row * pairs) {}
        __device__ void advance(int pairs, int more_rows, int more_pairs) {
            row += more_rows, pair += more_pairs;
            if (pair >= pairs) pair -= pairs, ++row;
        }
    };
    struct Loaded {
        uint2 a, b;
        std::uint32_t scales;
    };

    __device__ Loaded load(const Arguments& arguments, const Item& item, int first_range, int first,
                           Place place) const {
        const int range = place.row / S::kOperands, operand = place.row % S::kOperands;
        const int block = ((first_range + range) * arguments.range_steps + first) * kStep + place.pair * 2;
        const Nvfp4& q = threadIdx.x % S::kPasses == 0 ? arguments.x : arguments.residual;
        const int token = operand * S::kOperandTokens + threadIdx.x % 8 / S::kPasses;
        const std::int64_t at = static_cast<std::int64_t>(item.token + token) * arguments.blocks + block;
        const bool inside = range < arguments.ranges && token < item.tokens;
        Loaded loaded{};
        if (inside && block < arguments.blocks)
            loaded.a = reinterpret_cast<const uint2*>(q.codes)[at], loaded.scales = q.scales[at];
        if (inside && block + 1 < arguments.blocks)
            loaded.b = reinterpret_cast<const uint2*>(q.codes)[at + 1], loaded.scales |= q.scales[at + 1] << 8;
        return loaded;
    }

    // Decodes the steps from `first` on of each range; zeros outside the matrix. The whole thread block calls it.
    // after_loads is called when the first loads are under way: what it loads itself then queues behind them.
    template <typename AfterLoads>
    __device__ void fill(const Arguments& arguments, const Item& item, int first_range, int first,
                         AfterLoads after_loads) const {
        constexpr int kBatch = 2;  // loads under way of a thread
        const int rows = arguments.ranges * S::kOperands, each = blockDim.x / 8;
        const int more_rows = each / pairs, more_pairs = each - more_rows * pairs;
        Place to_load(pairs), to_store(pairs);
        do {
            Loaded loaded[kBatch];
#pragma unroll
            for (Loaded& next : loaded) {
                next = load(arguments, item, first_range, first, to_load);
                to_load.advance(pairs, more_rows, more_pairs);
            }
            after_loads();
#pragma unroll
            for (const Loaded& next : loaded) {
                if (to_store.row < rows) {
                    const int range = to_store.row / S::kOperands, operand = to_store.row % S::kOperands;
                    uint4* target = operands + ((range * pairs + to_store.pair) * S::kOperands + operand) * kWarp;
                    store(target + threadIdx.x % 8 * 4, threadIdx.x % 8 / 2, next.a, next.b,
                          scales_to_half2(static_cast<std::uint16_t>(next.scales)));
                }
                to_store.advance(pairs, more_rows, more_pairs);
            }
        } while (to_store.row < rows);
    }

    // Bytes 0 and 1, or 2 and 3, of two blocks of a token interleaved, four times: see four_codes_to_half2. Lanes next
    // to each other write their four pieces in another order, `turn`, so that they meet different banks.
    static __device__ void store(uint4* target, int turn, uint2 a, uint2 b, __half2 scales) {
        if (turn & 2) a = make_uint2(a.y, a.x), b = make_uint2(b.y, b.x);
        const std::uint32_t first = turn & 1 ? 0x7362 : 0x5140, second = turn & 1 ? 0x5140 : 0x7362;
        target[turn] = decode(__byte_perm(a.x, b.x, first), scales);
        target[turn ^ 1] = decode(__byte_perm(a.x, b.x, second), scales);
        target[turn ^ 2] = decode(__byte_perm(a.y, b.y, first), scales);
        target[turn ^ 3] = decode(__byte_perm(a.y, b.y, second), scales);
    }

    static __device__ uint4 decode(std::uint32_t codes, __half2 scales) {
        const __half2 first = __low2half2(scales), second = __high2half2(scales);
        return make_uint4(
            multiply_half2(codes_to_half2<0>(codes), first), multiply_half2(codes_to_half2<1>(codes), first),
            multiply_half2(codes_to_half2<2>(codes), second), multiply_half2(codes_to_half2<3>(codes), second));
    }
};

}  // namespace quads::kernels::ladder
