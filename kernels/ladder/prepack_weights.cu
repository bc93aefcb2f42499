// Weights in the order of the decode kernel's fragments: ladder.hpp describes the layout, fragments.cuh the bits.
#include "kernels/device.hpp"
#include "kernels/ladder/fragments.cuh"
#include "kernels/ladder/ladder.hpp"
#include "kernels/warp.cuh"

namespace quads::kernels::ladder {
namespace {

constexpr int kTileRows = 16, kStep = 8;  // rows of a tile, scale blocks that lie together

__host__ __device__ inline std::int64_t row_tiles_of(int N) { return (N + kTileRows - 1) / kTileRows; }
__host__ __device__ inline std::int64_t steps_of(int K) { return (blocks_of(K) + kStep - 1) / kStep; }

// The code of column 4t + i of a block in row `row` of a matrix; 0 outside.
struct Matrix {
    const std::uint8_t *codes, *scales;
    int N, blocks;

    __device__ std::uint32_t code(int row, int block, int column) const {
        if (row >= N || block >= blocks) return 0;
        return code_at(codes + (static_cast<std::int64_t>(row) * blocks + block) * (kBlock / 2), column);
    }
    __device__ std::uint8_t scale(int row, int block) const {
        return row < N && block < blocks ? scales[static_cast<std::int64_t>(row) * blocks + block] : 0;
    }
};

// One thread per word, a lane's eight codes of one block; one in four also moves the scales of that block and its rows.
__global__ void prepack_kernel(Nvfp4 w, int E, int N, int K, Nvfp4 packed) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int in_step = static_cast<int>(i % (kWarp * kStep)), lane = in_step / 4 % kWarp;
    const std::int64_t step = i / (kWarp * kStep), tile = step / steps_of(K), e = tile / row_tiles_of(N);
    if (e >= E) return;
    const int in_block = in_step % 4 + in_step / (4 * kWarp) * 4, column = lane % 4 * 4;
    const int row = static_cast<int>(tile % row_tiles_of(N)) * kTileRows + lane / 4,
              block = static_cast<int>(step % steps_of(K)) * kStep + in_block;
    const std::int64_t of_matrix = e * N * blocks_of(K);
    const Matrix matrix{w.codes + of_matrix * (kBlock / 2), w.scales + of_matrix, N, blocks_of(K)};

    // Columns 0 and 2 of the lane's four are one FP16 pair, 1 and 3 the other: four_codes_to_half2 pairs x the same
    // way.
    std::uint32_t word = 0;
    for (int half = 0; half < 2; ++half) {
        const int first = column + 2 * half, second = first + 1;
        word |= encode_fragment(matrix.code(row, block, first), matrix.code(row + 8, block, first),
                                matrix.code(row, block, second), matrix.code(row + 8, block, second))
                << (16 * half);
    }
    reinterpret_cast<std::uint32_t*>(packed.codes)[i] = word;
    if (lane % 4 != 0) return;
    std::uint8_t* scales = packed.scales + step * kStep * kTileRows + (lane / 4 * kStep + in_block) * 2;
    scales[0] = matrix.scale(row, block);
    scales[1] = matrix.scale(row + 8, block);
}

}  // namespace

std::size_t prepacked_code_bytes(int E, int N, int K) {
    return E * row_tiles_of(N) * steps_of(K) * kStep * kTileRows * (kBlock / 2);
}
std::size_t prepacked_scale_bytes(int E, int N, int K) { return E * row_tiles_of(N) * steps_of(K) * kStep * kTileRows; }

void prepack_weights(Nvfp4 w, int E, int N, int K, Nvfp4 packed) {
    const std::int64_t words = static_cast<std::int64_t>(prepacked_code_bytes(E, N, K) / 4);
    if (words == 0) return;
    prepack_kernel<<<blocks_for(words), kThreads, 0, stream()>>>(w, E, N, K, packed);
    CUDA_CHECK_LAUNCH(prepack_kernel);
}

}  // namespace quads::kernels::ladder
