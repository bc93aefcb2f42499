// W4A4 GEMM, rung 5: decode, few tokens (1-64). Weights are the 16-row operand, tokens the 8-column one, so eight tokens fill an
// instruction. Reading the weights once, at the speed of memory, is the whole cost to aim at. New here:
//   - weights come prepacked in fragment order, 16 bytes a lane, through a ring of asynchronous copies per warp;
//   - a chain of warps shares the K axis of 16 weight rows: each warp computes the exact dots of its blocks on tensor cores
//     at once, and only the FP32 sum, which must run in ascending order, passes from warp to warp. Same bits, no split over K;
//   - the chains of a thread block share the activations, decoded once into operands in shared memory;
//   - one launch for all groups: thread blocks stride over (group, tokens, rows of w), empty groups cost nothing;
//   - with a residual, each weight block is decoded once and meets both operands;
//   - the kernel may start while the previous one ends (programmatic dependent launch) and fetches weights meanwhile. So
//     the weights must be complete before the previous kernel on the stream starts; all other inputs may come from it.
#include "kernels/device.hpp"
#include "kernels/ladder/fragments.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/ladder/pipeline.cuh"
#include "kernels/warp.cuh"
#include "reference/check.hpp"

namespace quads::kernels::ladder {
namespace {

constexpr int kOctet = 8, kTileRows = 16;  // tokens and weight rows of one instruction
constexpr int kSpan = 4;                   // scale blocks that lie together in prepacked weights
constexpr int kSpanCodes = kSpan * 128, kSpanScales = kSpan * kTileRows;  // bytes of a span
constexpr int kMaxWarps = 16;              // of a thread block

// What the compiler must know: octets of tokens, scale blocks of a step, ring slots, passes (2 with a residual).
template <int kOctets_, int kStep_, int kSlots_, int kPasses_>
struct Shape {
    static constexpr int kOctets = kOctets_, kStep = kStep_, kSlots = kSlots_, kPasses = kPasses_;
    static constexpr int kTokens = kOctets * kOctet;
    static constexpr int kSlotBytes = kStep * (128 + kTileRows);
    static constexpr int kWarpBytes = 16 + kOctets * kWarp * 16 + kSlots * kSlotBytes;  // link, inbox and ring
    static constexpr int kBlockBytes = kPasses * kTokens * 32;  // a scale block of the activations, decoded
};

struct Arguments {
    Nvfp4 x, residual, w;
    Groups groups;
    int M, N, blocks;
    int chains, chain_warps;  // of a thread block
    int laps_per_stage;       // laps over K whose activations fit into shared memory
    float* y;

    __host__ __device__ int row_tiles() const { return (N + kTileRows - 1) / kTileRows; }
    __host__ __device__ int row_groups() const { return (row_tiles() + chains - 1) / chains; }
    __host__ __device__ int spans() const { return (blocks + kSpan - 1) / kSpan; }
};

int multiprocessors() {
    static const int count = [] {
        int device = 0, value = 0;
        CUDA_CHECK(cudaGetDevice(&device));
        CUDA_CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
        return value;
    }();
    return count;
}

// Some tokens of one group and one row tile of its matrix for each chain.
struct Item {
    int e, token, tokens, row_group;  // tokens: 0 where there is no such item

    __device__ bool valid() const { return tokens > 0; }
};

// Item number i, found by a whole warp, 32 groups at a time. Not inlined: it is called rarely.
__device__ __noinline__ Item find_item(Groups groups, int M, int tokens_per_item, int row_groups, int i) {
    if (groups.E == 1) {  // the host knows it all
        const int chunks = (M + tokens_per_item - 1) / tokens_per_item, token = i % chunks * tokens_per_item;
        return {0, token, i < chunks * row_groups ? min(tokens_per_item, M - token) : 0, i / chunks};
    }
    for (int first = 0; first < groups.E; first += kWarp) {
        const int e = first + lane_id();
        const int begin = e < groups.E ? groups.offsets[e] : 0, count = e < groups.E ? groups.offsets[e + 1] - begin : 0;
        const int chunks = (count + tokens_per_item - 1) / tokens_per_item;
        int through = chunks * row_groups;  // items of this group and the ones before it
        for (int distance = 1; distance < kWarp; distance *= 2) {
            const int before = __shfl_up_sync(kAllLanes, through, distance);
            if (lane_id() >= distance) through += before;
        }
        const unsigned reach = __ballot_sync(kAllLanes, i < through);
        if (reach == 0) {
            i -= __shfl_sync(kAllLanes, through, kWarp - 1);
            continue;
        }
        const int lane = __ffs(reach) - 1, my_chunks = __shfl_sync(kAllLanes, chunks, lane);
        const int within = i - __shfl_sync(kAllLanes, through, lane) + my_chunks * row_groups;
        const int token = within % my_chunks * tokens_per_item, left = __shfl_sync(kAllLanes, count, lane) - token;
        return {first + lane, __shfl_sync(kAllLanes, begin, lane) + token, min(tokens_per_item, left), within / my_chunks};
    }
    return {0, 0, 0, 0};
}

template <typename S>
__device__ Item find_item(const Arguments& arguments, int i) {
    return find_item(arguments.groups, arguments.M, S::kTokens, arguments.row_groups(), i);
}

// A warp's way through its weights: the steps of one item, then those of the next.
template <typename S>
struct Fetcher {
    const Arguments& arguments;
    char* ring;
    int chain, warp, laps;    // warp: within the chain
    int number, lap, slot;    // of the next step to fetch
    bool inside;              // whether this item exists and has a row tile for this chain
    const std::uint8_t *codes, *scales;

    __device__ Fetcher(const Arguments& arguments, char* ring, int chain, int warp, int laps)
        : arguments(arguments), ring(ring), chain(chain), warp(warp), laps(laps), number(blockIdx.x), lap(0), slot(0) {
        enter();
    }

    __device__ void enter() {
        const Item item = find_item<S>(arguments, number);
        const int row_tile = item.row_group * arguments.chains + chain;
        inside = item.valid() && row_tile < arguments.row_tiles();
        const std::int64_t base = inside ? (static_cast<std::int64_t>(item.e) * arguments.row_tiles() + row_tile) * arguments.spans() : 0;
        codes = arguments.w.codes + base * kSpanCodes + lane_id() * 16;
        scales = arguments.w.scales + base * kSpanScales + lane_id() * 16;
    }

    // Starts the copy of one step; what lies outside of the matrix becomes zeros.
    __device__ void fetch() {
        constexpr int kSpans = S::kStep / kSpan;
        char* target = ring + slot * S::kSlotBytes;
        const int first = (lap * arguments.chain_warps + warp) * kSpans, spans = inside ? arguments.spans() : 0;
#pragma unroll
        for (int i = 0; i < kSpans; ++i) {
            const bool valid = first + i < spans;
            copy_16_async(target + i * kSpanCodes + lane_id() * 16, codes + (valid ? (first + i) * kSpanCodes : 0), valid);
        }
        if (lane_id() < S::kStep) {
            const bool valid = first + lane_id() / kSpan < spans;
            copy_16_async(target + S::kStep * 128 + lane_id() * 16, scales + (valid ? first * kSpanScales : 0), valid);
        }
        commit_copies();
        slot = slot + 1 < S::kSlots ? slot + 1 : 0;
        if (++lap < laps) return;
        lap = 0;
        number += gridDim.x;
        enter();
    }
};

// The activations of kTokens tokens in shared memory: [pass][octet][pair of blocks][lane] the operands q * s * 2^-14 of one
// lane for two blocks.
template <typename S>
struct Staged {
    uint4* operands;
    int pairs;

    __device__ const uint4* of(int pass, int octet, int pair) const {
        return operands + ((pass * S::kOctets + octet) * pairs + pair) * kWarp;
    }

    // Decodes from block `first` of the matrices on; zeros outside. The whole thread block calls it.
    __device__ void fill(const Arguments& arguments, const Item& item, int first) const {
        for (int i = threadIdx.x; i < S::kPasses * S::kTokens * pairs; i += blockDim.x) {
            const int g = i % kOctet, pair = i / kOctet % pairs, octet = i / kOctet / pairs % S::kOctets;
            const int pass = i / kOctet / pairs / S::kOctets, token = octet * kOctet + g, block = first + 2 * pair;
            const Nvfp4& q = pass == 0 ? arguments.x : arguments.residual;
            const std::int64_t at = static_cast<std::int64_t>(item.token + token) * arguments.blocks + block;
            uint2 a = make_uint2(0, 0), b = a;
            std::uint32_t scales = 0;
            if (token < item.tokens && block < arguments.blocks) {
                a = reinterpret_cast<const uint2*>(q.codes)[at];
                scales = q.scales[at];
                if (block + 1 < arguments.blocks) {
                    b = reinterpret_cast<const uint2*>(q.codes)[at + 1];
                    scales |= static_cast<std::uint32_t>(q.scales[at + 1]) << 8;
                }
            }
            const __half2 both = scales_to_half2(static_cast<std::uint16_t>(scales));
            // Bytes 0 and 1, or 2 and 3, of a and b interleaved: see four_codes_to_half2.
            uint4* target = operands + (((pass * S::kOctets + octet) * pairs + pair) * kOctet + g) * 4;
            target[0] = decode(__byte_perm(a.x, b.x, 0x5140), both);
            target[1] = decode(__byte_perm(a.x, b.x, 0x7362), both);
            target[2] = decode(__byte_perm(a.y, b.y, 0x5140), both);
            target[3] = decode(__byte_perm(a.y, b.y, 0x7362), both);
        }
    }

    static __device__ uint4 decode(std::uint32_t codes, __half2 scales) {
        const __half2 first = __low2half2(scales), second = __high2half2(scales);
        return make_uint4(multiply_half2(codes_to_half2<0>(codes), first), multiply_half2(codes_to_half2<1>(codes), first),
                          multiply_half2(codes_to_half2<2>(codes), second), multiply_half2(codes_to_half2<3>(codes), second));
    }
};

// Exact dots of one step with the scales of x, and the scales of this lane's two weight rows.
template <typename S>
struct Dots {
    float dot[S::kStep][S::kOctets][S::kPasses][4];
    __half2 scales[S::kStep];

    // `slot` holds the step's weights; calls release() once they are in registers.
    template <typename Release>
    __device__ void compute(const char* slot, const Staged<S>& staged, int first_pair, Release release) {
        uint4 words[S::kStep / kSpan];
        uint2 bytes[S::kStep / kSpan];
#pragma unroll
        for (int i = 0; i < S::kStep / kSpan; ++i) {
            words[i] = reinterpret_cast<const uint4*>(slot + i * kSpanCodes)[lane_id()];
            bytes[i] = reinterpret_cast<const uint2*>(slot + S::kStep * 128 + i * kSpanScales)[lane_id() / 4];
        }
        release();
#pragma unroll
        for (int i = 0; i < S::kStep; i += 2) {
            const uint4 four = words[i / kSpan];
            const std::uint32_t two = i % 4 == 0 ? bytes[i / kSpan].x : bytes[i / kSpan].y;
            scales[i] = scales_to_half2(static_cast<std::uint16_t>(two));
            scales[i + 1] = scales_to_half2(static_cast<std::uint16_t>(two >> 16));
            std::uint32_t a[2][4];
            decode_fragment(i % 4 == 0 ? four.x : four.z, a[0]);
            decode_fragment(i % 4 == 0 ? four.y : four.w, a[1]);
#pragma unroll
            for (int octet = 0; octet < S::kOctets; ++octet) {
#pragma unroll
                for (int pass = 0; pass < S::kPasses; ++pass) {
                    const uint4 x = staged.of(pass, octet, first_pair + i / 2)[lane_id()];
                    mma_16x8x16(a[0], {x.x, x.y}, dot[i][octet][pass]);
                    mma_16x8x16(a[1], {x.z, x.w}, dot[i + 1][octet][pass]);
                }
            }
        }
    }

    // The only rounding: ascending blocks, main before residual.
    __device__ void add_to(float (&acc)[S::kOctets][4]) const {
#pragma unroll
        for (int i = 0; i < S::kStep; ++i) {
            const float upper = __low2float(scales[i]), lower = __high2float(scales[i]);
#pragma unroll
            for (int pass = 0; pass < S::kPasses; ++pass) {
#pragma unroll
                for (int octet = 0; octet < S::kOctets; ++octet) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        acc[octet][j] = fmaf(dot[i][octet][pass][j], j < 2 ? upper : lower, acc[octet][j]);
                    }
                }
            }
        }
    }
};

template <typename S>
__device__ void store(const Arguments& arguments, const Item& item, int row_tile, const float (&acc)[S::kOctets][4]) {
    const float w_outer = arguments.w.outer[item.e];
#pragma unroll
    for (int octet = 0; octet < S::kOctets; ++octet) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int n = row_tile * kTileRows + lane_id() / 4 + j / 2 * 8;
            const int token = octet * kOctet + lane_id() % 4 * 2 + j % 2, m = item.token + token;
            if (n >= arguments.N || token >= item.tokens) continue;
            const float x_outer = arguments.x.outer[arguments.x.outer_scale == OuterScale::row ? m : item.e];
            arguments.y[static_cast<std::int64_t>(m) * arguments.N + n] = (acc[octet][j] * kUndoShift) * (x_outer * w_outer);
        }
    }
}

// The running sums of 16 weight rows on their way from warp to warp. Each warp has one link and one inbox of its own.
template <typename S>
struct Chain {
    std::uint64_t *my_link, *next_link;
    float4 *my_inbox, *next_inbox;  // [octet][lane]
    std::uint32_t phase = 0;

    // Warps of a thread block: links of 16 bytes each, then inboxes, then rings.
    __device__ Chain(char* memory, int warps, int me, int next)
        : my_link(reinterpret_cast<std::uint64_t*>(memory + me * 16)), next_link(reinterpret_cast<std::uint64_t*>(memory + next * 16)),
          my_inbox(reinterpret_cast<float4*>(memory + warps * 16) + me * S::kOctets * kWarp + lane_id()),
          next_inbox(reinterpret_cast<float4*>(memory + warps * 16) + next * S::kOctets * kWarp + lane_id()) {}

    __device__ void receive(float (&acc)[S::kOctets][4]) {
        wait_at_link(my_link, phase);
        phase ^= 1;
#pragma unroll
        for (int octet = 0; octet < S::kOctets; ++octet) {
            const float4 four = my_inbox[octet * kWarp];
            acc[octet][0] = four.x, acc[octet][1] = four.y, acc[octet][2] = four.z, acc[octet][3] = four.w;
        }
    }
    __device__ void send(const float (&acc)[S::kOctets][4]) const {
#pragma unroll
        for (int octet = 0; octet < S::kOctets; ++octet) {
            next_inbox[octet * kWarp] = make_float4(acc[octet][0], acc[octet][1], acc[octet][2], acc[octet][3]);
        }
        pass_link(next_link);
    }
};

template <int kOctets>
__device__ void clear(float (&acc)[kOctets][4]) {
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) acc[octet][0] = acc[octet][1] = acc[octet][2] = acc[octet][3] = 0.0f;
}

template <typename S>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 1) decode_kernel(const Arguments arguments) {
    extern __shared__ __align__(16) char memory[];
    const int warps = blockDim.x / kWarp, me = threadIdx.x / kWarp;
    const int chain_number = me / arguments.chain_warps, warp = me % arguments.chain_warps;
    const bool first_warp = warp == 0, last_warp = warp == arguments.chain_warps - 1;
    const int lap_blocks = arguments.chain_warps * S::kStep, laps = (arguments.blocks + lap_blocks - 1) / lap_blocks;
    char* rings = memory + warps * (16 + S::kOctets * kWarp * 16);
    const Staged<S> staged{reinterpret_cast<uint4*>(memory + warps * S::kWarpBytes), arguments.laps_per_stage * lap_blocks / 2};
    Chain<S> chain(memory, warps, me, last_warp ? me - warp : me + 1);

    start_next_kernel();
    if (lane_id() == 0) make_link(chain.my_link);
    if (arguments.groups.E > 1) wait_for_previous_kernel();  // it may have written the offsets
    Fetcher<S> fetcher(arguments, rings + me * S::kSlots * S::kSlotBytes, chain_number, warp, laps);
    for (int slot = 0; slot < S::kSlots; ++slot) fetcher.fetch();
    if (arguments.groups.E == 1) wait_for_previous_kernel();

    int number = blockIdx.x;
    bool same_tokens = false;  // as in the item before: activations stay, and sums must not overtake those of that item
    for (Item item = find_item<S>(arguments, number), next; item.valid(); item = next) {
        number += gridDim.x;
        next = find_item<S>(arguments, number);
        const bool next_same = next.valid() && next.e == item.e && next.token == item.token && laps <= arguments.laps_per_stage;
        int stage_lap = 0;
        for (int lap = 0; lap < laps; ++lap) {
            if (stage_lap == 0 && !same_tokens) {
                __syncthreads();
                staged.fill(arguments, item, lap * lap_blocks);
                __syncthreads();
            }
            wait_for_copies<S::kSlots - 1>();
            __syncwarp();
            Dots<S> dots;
            dots.compute(fetcher.ring + fetcher.slot * S::kSlotBytes, staged, (stage_lap * arguments.chain_warps + warp) * (S::kStep / 2), [&] {
                __syncwarp();
                fetcher.fetch();  // into the slot just read
            });
            const bool first = first_warp && lap == 0, last = last_warp && lap == laps - 1;
            float acc[S::kOctets][4];
            if (!first || same_tokens) chain.receive(acc);
            if (first) clear(acc);
            dots.add_to(acc);
            if (!last || next_same) chain.send(acc);
            if (last) store<S>(arguments, item, item.row_group * arguments.chains + chain_number, acc);
            stage_lap = stage_lap + 1 < arguments.laps_per_stage ? stage_lap + 1 : 0;
        }
        same_tokens = next_same;
    }
}

// Launches with leave to overlap the end of the previous kernel.
template <typename S>
void launch(Arguments arguments, int chains, int chain_warps, int blocks_per_sm) {
    arguments.chains = chains;
    arguments.chain_warps = chain_warps;
    const int warps = chains * chain_warps, lap_blocks = chain_warps * S::kStep;
    const int laps = (arguments.blocks + lap_blocks - 1) / lap_blocks;
    const int room = 226 * 1024 / blocks_per_sm - 1024 - warps * S::kWarpBytes;
    const int fitting = room / (lap_blocks * S::kBlockBytes);
    check(fitting > 0, "The decode kernel has no room for the activations of one lap.");
    const int stages = (laps + fitting - 1) / fitting;
    arguments.laps_per_stage = (laps + stages - 1) / stages;
    const int bytes = warps * S::kWarpBytes + arguments.laps_per_stage * lap_blocks * S::kBlockBytes;
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

// Chains for every multiprocessor's share of the row tiles, as long as K allows.
template <typename S>
void launch(const Arguments& arguments) {
    const int tiles_each = (arguments.row_tiles() + multiprocessors() - 1) / multiprocessors();
    if (arguments.groups.E > 1) return launch<S>(arguments, 4, 2, 2);
    if (tiles_each <= 2) return launch<S>(arguments, 2, 8, 1);
    if (tiles_each <= 4) return launch<S>(arguments, 4, 4, 1);
    launch<S>(arguments, 7, 2, 1);
}

}  // namespace

void gemm_w4a4_5_decode(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    if (M == 0 || N == 0) return;
    const Arguments arguments{x, residual != nullptr ? *residual : x, w, groups, M, N, blocks_of(K), 0, 0, 0, y};
    const int tokens = groups.E == 1 ? M : (M + groups.E - 1) / groups.E;  // of a typical group
    if (residual != nullptr) {
        if (tokens <= 8) return launch<Shape<1, 8, 3, 2>>(arguments);
        return launch<Shape<2, 4, 4, 2>>(arguments);
    }
    if (tokens <= 8) return launch<Shape<1, 8, 3, 1>>(arguments);
    if (tokens <= 16) return launch<Shape<2, 8, 3, 1>>(arguments);
    launch<Shape<4, 4, 4, 1>>(arguments);
}

}  // namespace quads::kernels::ladder
