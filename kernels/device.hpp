// What every .cu file shares on the host side: stream, launch sizes, short-lived memory and the report of bad input.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda_check.hpp"

namespace quads::kernels {

// The one stream of the calling thread. Its first call chooses the device.
cudaStream_t stream();

constexpr int kThreads = 256;  // threads of a block where nothing speaks for another number
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;

// Blocks that hold `items` pieces of work, `per_block` in each.
inline unsigned blocks_for(std::int64_t items, int per_block = kThreads) {
    return static_cast<unsigned>((items + per_block - 1) / per_block);
}

// Memory for intermediate results of one call, in stream order: allocating and freeing only queue work.
template <typename Element>
class Scratch {
public:
    explicit Scratch(std::size_t size) {
        CUDA_CHECK(cudaMallocAsync(&data_, (size > 0 ? size : 1) * sizeof(Element), stream()));
    }
    ~Scratch() { cudaFreeAsync(data_, stream()); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    Element* data() const { return data_; }

private:
    Element* data_ = nullptr;
};

// What a kernel can find wrong with its input.
enum class Trouble { nvfp4_input, fp8_input, no_token };

// Where kernels note the first trouble; to_host throws it as the reference's error. The smallest key wins: keys order
// by call, so that an error is reported where it arises and not where it spread to, then by row and column.
struct Report {
    unsigned long long* smallest;
    unsigned long long call;

    // The key: call (14 bits), row (24), column (22), trouble (2), value (2: sign and whether it is NaN).
    __device__ void note(Trouble trouble, int row, int column, float value) const {
        const unsigned kind =
            static_cast<unsigned>(trouble) << 2 | (signbit(value) ? 2u : 0u) | (isnan(value) ? 1u : 0u);
        const unsigned long long place = static_cast<unsigned long long>(row & 0xFFFFFF) << 22 | (column & 0x3FFFFF);
        atomicMin(smallest, call << 50 | place << 4 | kind);
    }
};

// One report per call that can have trouble.
Report next_report();

}  // namespace quads::kernels
