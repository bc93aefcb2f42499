// W4A4 GEMM, rung 5: decode, few tokens (1-64). Weights are the 16-row operand, tokens the 8-column one, so eight tokens fill an
// instruction. Reading the weights once, at the speed of memory, is the whole cost to aim at. New here:
//   - weights come prepacked in fragment order, 16 bytes a lane, through a ring of asynchronous copies per warp;
//   - the warps of a block share the K axis: each computes the exact dots of its blocks on tensor cores at once, and only
//     the FP32 sum, which must run in ascending order, passes from warp to warp. Same bits, no split over K;
//   - one launch for all groups: blocks stride over (group, tokens, rows of w), empty groups cost nothing;
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

// Shape of the kernel: octets of tokens, row tiles of a block, warps that share K, scale blocks of a step, ring slots, passes
// (2 with a residual), thread blocks meant to share a multiprocessor.
template <int kOctets_, int kTiles_, int kWarps_, int kStep_, int kSlots_, int kPasses_, int kBlocksPerSm_>
struct Shape {
    static constexpr int kOctets = kOctets_, kTiles = kTiles_, kWarps = kWarps_, kStep = kStep_, kSlots = kSlots_;
    static constexpr int kPasses = kPasses_, kBlocksPerSm = kBlocksPerSm_, kTokens = kOctets * kOctet, kLap = kWarps * kStep;
    static constexpr int kSlotBytes = kStep * (128 + kTileRows);
    static constexpr int kRingBytes = kWarps * kSlots * kSlotBytes;
    static constexpr int kChainBytes = kTiles * kWarps * kOctets * kWarp * 16;
    static_assert(kWarps >= 2 && kWarps * kTiles <= 15, "each link of each chain needs a hardware barrier besides number 0");
};

struct Arguments {
    Nvfp4 x, residual, w;
    Groups groups;
    int M, N, blocks;
    int laps_per_stage;  // laps over K whose activations fit into shared memory
    float* y;

    __host__ __device__ int row_tiles() const { return (N + kTileRows - 1) / kTileRows; }
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

// Some tokens of one group and some row tiles of its matrix.
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
    return find_item(arguments.groups, arguments.M, S::kTokens, (arguments.row_tiles() + S::kTiles - 1) / S::kTiles, i);
}

// Which weights a warp fetches next: laps over K outside, row tiles inside, as the kernel uses them.
template <typename S>
struct Cursor {
    Item item;
    int number, lap, tile;

    __device__ Cursor(const Arguments& arguments)
        : item(find_item<S>(arguments, blockIdx.x)), number(blockIdx.x), lap(0), tile(0) {}

    __device__ void advance(const Arguments& arguments, int laps) {
        if (++tile < S::kTiles) return;
        tile = 0;
        if (++lap < laps) return;
        lap = 0;
        number += gridDim.x;
        item = find_item<S>(arguments, number);
    }
};

// Starts the copy of one step of weights; what lies outside of the matrix becomes zeros.
template <typename S>
__device__ void fetch(const Arguments& arguments, const Cursor<S>& at, int warp, char* slot) {
    const int row_tile = at.item.row_group * S::kTiles + at.tile, lane = lane_id();
    const int first = (at.lap * S::kWarps + warp) * (S::kStep / kSpan), spans = arguments.spans();
    const std::int64_t base = (static_cast<std::int64_t>(at.item.e) * arguments.row_tiles() + row_tile) * spans + first;
    const bool inside = at.item.valid() && row_tile < arguments.row_tiles();
#pragma unroll
    for (int i = 0; i < S::kStep / kSpan; ++i) {
        const bool valid = inside && first + i < spans;
        copy_16_async(slot + i * kSpanCodes + lane * 16, arguments.w.codes + (valid ? base + i : 0) * kSpanCodes + lane * 16, valid);
    }
    if (lane < S::kStep) {
        const bool valid = inside && first + lane / kSpan < spans;
        copy_16_async(slot + S::kStep * 128 + lane * 16, arguments.w.scales + (valid ? base * kSpanScales + lane * 16 : 0), valid);
    }
    commit_copies();
}

// The activations of kTokens tokens in shared memory, `blocks` scale blocks of each:
//   codes   [pass][octet][pair of blocks][lane] words: the four codes of one lane in two blocks, ready for codes_to_half2
//   scales  [pass][token][blocks + 8] bytes
template <typename S>
struct Staged {
    std::uint32_t* codes;
    std::uint8_t* scales;
    int blocks;

    __device__ Staged(char* memory, int laps)
        : codes(reinterpret_cast<std::uint32_t*>(memory)),
          scales(reinterpret_cast<std::uint8_t*>(memory) + S::kPasses * S::kTokens * laps * S::kLap * 8), blocks(laps * S::kLap) {}

    static int bytes(int laps) { return S::kPasses * S::kTokens * (laps * S::kLap * 9 + 8); }

    __device__ const std::uint32_t* codes_of(int pass, int octet, int block) const {
        return codes + ((pass * S::kOctets + octet) * blocks + block) / 2 * kWarp;
    }
    __device__ std::uint8_t* scales_of(int pass, int token) const {
        return scales + (pass * S::kTokens + token) * (blocks + 8);
    }

    // Fills both from block `first` of the matrices on; zeros outside. The whole thread block calls it.
    __device__ void fill(const Arguments& arguments, const Item& item, int first) const {
        for (int pass = 0; pass < S::kPasses; ++pass) {
            const Nvfp4& q = pass == 0 ? arguments.x : arguments.residual;
            for (int i = threadIdx.x; i < S::kTokens * blocks / 2; i += S::kWarps * kWarp) {
                const int g = i % kOctet, pair = i / kOctet % (blocks / 2), octet = i / kOctet / (blocks / 2);
                const int token = octet * kOctet + g, block = first + 2 * pair;
                const std::int64_t at = static_cast<std::int64_t>(item.token + token) * arguments.blocks + block;
                const uint2* source = reinterpret_cast<const uint2*>(q.codes) + at;
                const bool inside = token < item.tokens;
                const uint2 a = inside && block < arguments.blocks ? source[0] : make_uint2(0, 0);
                const uint2 b = inside && block + 1 < arguments.blocks ? source[1] : make_uint2(0, 0);
                // Bytes 0 and 1 of a and b interleaved: see four_codes_to_half2.
                reinterpret_cast<uint4*>(codes)[((pass * S::kOctets + octet) * (blocks / 2) + pair) * kOctet + g] =
                    make_uint4(__byte_perm(a.x, b.x, 0x5140), __byte_perm(a.x, b.x, 0x7362),
                               __byte_perm(a.y, b.y, 0x5140), __byte_perm(a.y, b.y, 0x7362));
            }
            fill_scales(arguments, item, first, q, pass);
        }
    }

    __device__ void fill_scales(const Arguments& arguments, const Item& item, int first, const Nvfp4& q, int pass) const {
        const bool by_word = arguments.blocks % 4 == 0;  // then no word straddles the end of a row
        const int width = by_word ? 4 : 1;
        for (int i = threadIdx.x; i < S::kTokens * blocks / width; i += S::kWarps * kWarp) {
            const int token = i / (blocks / width), block = i % (blocks / width) * width;
            const bool inside = token < item.tokens && first + block < arguments.blocks;
            const std::uint8_t* source = q.scales + static_cast<std::int64_t>(item.token + token) * arguments.blocks + first + block;
            std::uint8_t* target = scales_of(pass, token) + block;
            if (by_word) {
                *reinterpret_cast<std::uint32_t*>(target) = inside ? *reinterpret_cast<const std::uint32_t*>(source) : 0u;
            } else {
                *target = inside ? *source : std::uint8_t{0};
            }
        }
    }
};

// Decoded activations of one step: q * s * 2^-14 in FP16.
template <typename S>
struct Operand {
    std::uint32_t pair[S::kStep][S::kOctets][S::kPasses][2];

    __device__ void load(const Staged<S>& staged, int block) {
#pragma unroll
        for (int octet = 0; octet < S::kOctets; ++octet) {
#pragma unroll
            for (int pass = 0; pass < S::kPasses; ++pass) {
                const std::uint32_t* codes = staged.codes_of(pass, octet, block) + lane_id();
                const auto* scales = reinterpret_cast<const std::uint16_t*>(
                    staged.scales_of(pass, octet * kOctet + lane_id() / 4) + block);
#pragma unroll
                for (int i = 0; i < S::kStep; i += 2) {
                    const std::uint32_t word = codes[i / 2 * kWarp];
                    const __half2 both = scales_to_half2(scales[i / 2]);
                    const __half2 low = __low2half2(both), high = __high2half2(both);
                    pair[i][octet][pass][0] = multiply_half2(codes_to_half2<0>(word), low);
                    pair[i][octet][pass][1] = multiply_half2(codes_to_half2<1>(word), low);
                    pair[i + 1][octet][pass][0] = multiply_half2(codes_to_half2<2>(word), high);
                    pair[i + 1][octet][pass][1] = multiply_half2(codes_to_half2<3>(word), high);
                }
            }
        }
    }
};

// Exact dots of one step with the scales of x, and the scales of this lane's two weight rows.
template <typename S>
struct Dots {
    float dot[S::kStep][S::kOctets][S::kPasses][4];
    __half2 scales[S::kStep];

    // `slot` holds the step's weights; calls release() once they are in registers.
    template <typename Release>
    __device__ void compute(const char* slot, const Operand<S>& x, Release release) {
        uint4 words[S::kStep / kSpan];
        uint2 bytes[S::kStep / kSpan];
#pragma unroll
        for (int i = 0; i < S::kStep / kSpan; ++i) {
            words[i] = reinterpret_cast<const uint4*>(slot + i * kSpanCodes)[lane_id()];
            bytes[i] = reinterpret_cast<const uint2*>(slot + S::kStep * 128 + i * kSpanScales)[lane_id() / 4];
        }
        release();
#pragma unroll
        for (int i = 0; i < S::kStep; ++i) {
            const uint4 four = words[i / kSpan];
            const std::uint32_t word = i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
            const std::uint32_t two = i % 4 < 2 ? bytes[i / kSpan].x : bytes[i / kSpan].y;
            scales[i] = scales_to_half2(static_cast<std::uint16_t>(i % 2 == 0 ? two : two >> 16));
            std::uint32_t a[4];
            decode_fragment(word, a);
#pragma unroll
            for (int octet = 0; octet < S::kOctets; ++octet) {
#pragma unroll
                for (int pass = 0; pass < S::kPasses; ++pass) mma_16x8x16(a, x.pair[i][octet][pass], dot[i][octet][pass]);
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

template <int kOctets>
__device__ void clear(float (&acc)[kOctets][4]) {
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) acc[octet][0] = acc[octet][1] = acc[octet][2] = acc[octet][3] = 0.0f;
}

// The running sums of one row tile on their way from warp to warp.
template <typename S>
struct Chain {
    float4* memory;  // [tile][receiving warp][octet][lane]
    int warp;

    __device__ float4* inbox(int tile, int receiver) const {
        return memory + (tile * S::kWarps + receiver) * S::kOctets * kWarp + lane_id();
    }
    __device__ static int link(int tile, int receiver) { return 1 + tile * S::kWarps + receiver; }
    __device__ int next() const { return warp + 1 < S::kWarps ? warp + 1 : 0; }

    __device__ void receive(int tile, float (&acc)[S::kOctets][4]) const {
        wait_at_link(link(tile, warp));
#pragma unroll
        for (int octet = 0; octet < S::kOctets; ++octet) {
            const float4 four = inbox(tile, warp)[octet * kWarp];
            acc[octet][0] = four.x, acc[octet][1] = four.y, acc[octet][2] = four.z, acc[octet][3] = four.w;
        }
    }
    __device__ void send(int tile, const float (&acc)[S::kOctets][4]) const {
#pragma unroll
        for (int octet = 0; octet < S::kOctets; ++octet) {
            inbox(tile, next())[octet * kWarp] = make_float4(acc[octet][0], acc[octet][1], acc[octet][2], acc[octet][3]);
        }
        pass_link(link(tile, next()));
    }
};

template <typename S>
__global__ void __launch_bounds__(S::kWarps* kWarp, S::kBlocksPerSm) decode_kernel(const Arguments arguments) {
    extern __shared__ __align__(16) char memory[];
    const int warp = threadIdx.x / kWarp, laps = (arguments.blocks + S::kLap - 1) / S::kLap;
    char* ring = memory + warp * S::kSlots * S::kSlotBytes;
    const Chain<S> chain{reinterpret_cast<float4*>(memory + S::kRingBytes), warp};
    const Staged<S> staged(memory + S::kRingBytes + S::kChainBytes, arguments.laps_per_stage);

    start_next_kernel();
    if (arguments.groups.E > 1) wait_for_previous_kernel();  // it may have written the offsets
    Cursor<S> ahead(arguments);
    for (int slot = 0; slot < S::kSlots; ++slot) {
        fetch<S>(arguments, ahead, warp, ring + slot * S::kSlotBytes);
        ahead.advance(arguments, laps);
    }
    if (arguments.groups.E == 1) wait_for_previous_kernel();

    int slot = 0, number = blockIdx.x;
    bool same_tokens = false;  // as in the item before: activations stay, and the chains must not overtake each other
    for (Item item = find_item<S>(arguments, number), next; item.valid(); item = next) {
        number += gridDim.x;
        next = find_item<S>(arguments, number);
        const bool next_same = next.valid() && next.e == item.e && next.token == item.token && laps <= arguments.laps_per_stage;
        for (int lap = 0; lap < laps; ++lap) {
            const int stage_lap = lap % arguments.laps_per_stage;
            if (stage_lap == 0 && !same_tokens) {
                __syncthreads();
                staged.fill(arguments, item, lap * S::kLap);
                __syncthreads();
            }
            Operand<S> x;
            x.load(staged, (stage_lap * S::kWarps + warp) * S::kStep);
#pragma unroll 1
            for (int tile = 0; tile < S::kTiles; ++tile) {
                char* mine = ring + slot * S::kSlotBytes;
                slot = slot + 1 < S::kSlots ? slot + 1 : 0;
                wait_for_copies<S::kSlots - 1>();
                __syncwarp();
                Dots<S> dots;
                dots.compute(mine, x, [&] {
                    __syncwarp();
                    fetch<S>(arguments, ahead, warp, mine);
                    ahead.advance(arguments, laps);
                });
                const bool first = warp == 0 && lap == 0, last = warp == S::kWarps - 1 && lap == laps - 1;
                float acc[S::kOctets][4];
                if (!first || same_tokens) chain.receive(tile, acc);
                if (first) clear(acc);
                dots.add_to(acc);
                if (!last || next_same) chain.send(tile, acc);
                if (last) store<S>(arguments, item, item.row_group * S::kTiles + tile, acc);
            }
        }
        same_tokens = next_same;
    }
}

// Launches with leave to overlap the end of the previous kernel.
template <typename S>
void launch(Arguments arguments) {
    constexpr int kActivationBytes = (220 * 1024) / S::kBlocksPerSm - S::kRingBytes - S::kChainBytes - 1024;
    const int laps = (arguments.blocks + S::kLap - 1) / S::kLap;
    arguments.laps_per_stage = laps;
    while (arguments.laps_per_stage > 1 && Staged<S>::bytes(arguments.laps_per_stage) > kActivationBytes) {
        arguments.laps_per_stage = (arguments.laps_per_stage + 1) / 2;
    }
    const int bytes = S::kRingBytes + S::kChainBytes + Staged<S>::bytes(arguments.laps_per_stage);
    CUDA_CHECK(cudaFuncSetAttribute(decode_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));

    const int E = arguments.groups.E, row_groups = (arguments.row_tiles() + S::kTiles - 1) / S::kTiles;
    const std::int64_t chunks = E == 1 ? (arguments.M + S::kTokens - 1) / S::kTokens
                                       : arguments.M / S::kTokens + (E < arguments.M ? E : arguments.M);
    const std::int64_t items = chunks * row_groups, resident = multiprocessors() * S::kBlocksPerSm;
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(items < resident ? items : resident));
    config.blockDim = dim3(S::kWarps * kWarp);
    config.dynamicSmemBytes = bytes;
    config.stream = stream();
    config.attrs = &overlap;
    config.numAttrs = 1;
    CUDA_CHECK(cudaLaunchKernelEx(&config, decode_kernel<S>, static_cast<const Arguments>(arguments)));
}

}  // namespace

void gemm_w4a4_5_decode(Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
    if (M == 0 || N == 0) return;
    const Arguments arguments{x, residual != nullptr ? *residual : x, w, groups, M, N, blocks_of(K), 0, y};
    const int tokens = groups.E == 1 ? M : (M + groups.E - 1) / groups.E;  // of a typical group
    if (residual != nullptr) {
        if (tokens <= 8) return launch<Shape<1, 1, 8, 8, 4, 2, 2>>(arguments);
        return launch<Shape<2, 1, 8, 4, 6, 2, 2>>(arguments);
    }
    if (tokens <= 8) return launch<Shape<1, 1, 8, 8, 4, 1, 2>>(arguments);
    if (tokens <= 16) return launch<Shape<2, 1, 8, 8, 4, 1, 2>>(arguments);
    launch<Shape<4, 1, 8, 4, 6, 1, 2>>(arguments);
}

}  // namespace quads::kernels::ladder
