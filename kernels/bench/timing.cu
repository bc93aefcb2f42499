#include "kernels/bench/timing.hpp"

#include "reference/codec.hpp"

namespace quads::bench {
namespace {

// A hash of the index: the same numbers on every run, no state.
__device__ std::uint32_t random_word(std::uint64_t i, unsigned seed) {
    std::uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ull + seed;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return static_cast<std::uint32_t>(x >> 32);
}

// Uniform in -2 .. 2.
__device__ float random_float(std::uint64_t i, unsigned seed) {
    return (static_cast<float>(random_word(i, seed) >> 8) - 8388608.0f) * 0x1p-22f;
}

struct RandomByte {
    int lowest;
    unsigned range, seed;
    __device__ std::uint8_t operator()(std::uint64_t i) const {
        return static_cast<std::uint8_t>(lowest + random_word(i, seed) % range);
    }
};
struct RandomFloat {
    unsigned seed;
    __device__ float operator()(std::uint64_t i) const { return random_float(i, seed); }
};
struct RandomBf16 {
    unsigned seed;
    __device__ std::uint16_t operator()(std::uint64_t i) const { return bf16_bits(random_float(i, seed)); }
};

template <typename Element, typename Value>
__global__ void fill_kernel(Element* out, std::size_t n, Value value) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
        out[i] = value(i);
}

template <typename Element, typename Value>
void fill(Element* out, std::size_t n, Value value) {
    fill_kernel<<<1024, kernels::kThreads, 0, kernels::stream()>>>(out, n, value);
    CUDA_CHECK_LAUNCH(fill_kernel);
}

// Four 16-byte loads in flight per thread.
__global__ void copy_kernel(const uint4* from, uint4* to) {
    const std::size_t first = static_cast<std::size_t>(blockIdx.x) * 1024 + threadIdx.x;
    uint4 values[4];
    for (int i = 0; i < 4; ++i) values[i] = from[first + i * 256];
    for (int i = 0; i < 4; ++i) to[first + i * 256] = values[i];
}

}  // namespace

void random_bytes(std::uint8_t* bytes, std::size_t n, int lowest, int highest, unsigned seed) {
    fill(bytes, n, RandomByte{lowest, static_cast<unsigned>(highest - lowest + 1), seed});
}

void random_floats(float* values, std::size_t n, unsigned seed) { fill(values, n, RandomFloat{seed}); }

void random_bf16(std::uint16_t* values, std::size_t n, unsigned seed) { fill(values, n, RandomBf16{seed}); }

double copy_bandwidth() {
    constexpr std::size_t kBytes = std::size_t{1} << 30;
    const Memory<std::uint8_t> from(kBytes), to(kBytes);
    random_bytes(from.data(), kBytes, 0, 255, 1);
    const double time = microseconds(4, [&](int) {
        copy_kernel<<<kBytes / (16 * 4 * 256), 256, 0, kernels::stream()>>>(reinterpret_cast<const uint4*>(from.data()),
                                                                            reinterpret_cast<uint4*>(to.data()));
        CUDA_CHECK_LAUNCH(copy_kernel);
    });
    return 2.0 * kBytes / (time * 1e-6);
}

}  // namespace quads::bench
