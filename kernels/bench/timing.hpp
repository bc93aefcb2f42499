// Timing by replays of a CUDA graph, so that launches cost what they cost in a captured rollout, and the card's copy
// limit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/device.hpp"

namespace quads::bench {

// Device memory of a benchmark; never on zeros: see random_bytes.
template <typename Element>
class Memory {
public:
    explicit Memory(std::size_t size) : size_(size) { CUDA_CHECK(cudaMalloc(&data_, size * sizeof(Element))); }
    Memory(Memory&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr; }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() { cudaFree(data_); }
    Element* data() const { return data_; }
    std::size_t size() const { return size_; }

private:
    Element* data_ = nullptr;
    std::size_t size_;
};

// Microseconds per call of work(i), i = 0 .. calls - 1, queued on kernels::stream(): the median over replays of a graph
// that holds all calls. Let i choose among copies of the operands that together exceed the L2 cache several times.
template <typename Work>
double microseconds(int calls, Work work) {
    constexpr int kWarmup = 2, kReplays = 9;
    const cudaStream_t stream = kernels::stream();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < calls; ++i) work(i);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    cudaEvent_t begin = nullptr, end = nullptr;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    std::vector<double> times;
    for (int i = 0; i < kWarmup + kReplays; ++i) {
        CUDA_CHECK(cudaEventRecord(begin, stream));
        CUDA_CHECK(cudaGraphLaunch(executable, stream));
        CUDA_CHECK(cudaEventRecord(end, stream));
        CUDA_CHECK(cudaEventSynchronize(end));
        float milliseconds = 0.0f;
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        if (i >= kWarmup) times.push_back(milliseconds * 1e3 / calls);
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    CUDA_CHECK(cudaGraphExecDestroy(executable));
    CUDA_CHECK(cudaGraphDestroy(graph));
    std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
    return times[kReplays / 2];
}

// Copies of an operand of `bytes` that exceed the L2 cache of any present card several times.
inline int copies_past_cache(double bytes) { return std::max(2, static_cast<int>(400e6 / bytes) + 1); }

// Fills n bytes with lowest .. highest at random, on the device.
void random_bytes(std::uint8_t* bytes, std::size_t n, int lowest, int highest, unsigned seed);
// n floats around 1 in magnitude; bf16: n BF16 numbers in the upper halves of such floats.
void random_floats(float* values, std::size_t n, unsigned seed);
void random_bf16(std::uint16_t* values, std::size_t n, unsigned seed);

// Bytes read and written per second by a large device-to-device copy.
double copy_bandwidth();

}  // namespace quads::bench
