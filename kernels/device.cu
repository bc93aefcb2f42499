// Choice of the GPU, its memory, and the copies at which errors of queued work surface.
#include "kernels/device.hpp"

#include <cmath>
#include <limits>

#include "kernels/kernels.hpp"
#include "reference/amax.hpp"

namespace quads::kernels {
namespace {

constexpr unsigned long long kNothing = ~0ull;

// What one host thread works with, so that runs side by side queue their work side by side.
struct Device {
    cudaStream_t stream = nullptr;
    unsigned long long* trouble = nullptr;  // on the device: the smallest key, see Report
    unsigned long long calls = 0;              // of next_report() since the last copy to the host
};

// The first device of compute capability 8.0 or later (8.0 brought the BF16 and warp-reduce instructions in use).
int choose_device() {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
    // The runtime's own words for a missing driver speak of its version.
    const char* reason = error == cudaErrorInsufficientDriver ? "the NVIDIA driver is missing or older than this CUDA"
                                                              : cudaGetErrorString(error);
    check(error == cudaSuccess, "No usable GPU: ", reason, ".", hint_for(error));
    cudaDeviceProp properties{};
    for (int device = 0; device < count; ++device) {
        CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
        if (properties.major >= 8) return device;
    }
    fail("The GPU ", properties.name, " has compute capability ", properties.major, ".", properties.minor,
         ", expected at least 8.0. Run with --device cpu.");
}

Device open_device() {
    Device device;
    const int number = choose_device();
    CUDA_CHECK(cudaSetDevice(number));
    CUDA_CHECK(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking));

    // Freed memory stays in the pool; otherwise every wait on the stream would hand it back to the driver.
    cudaMemPool_t pool = nullptr;
    std::uint64_t keep_everything = UINT64_MAX;
    CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, number));
    CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_everything));

    CUDA_CHECK(cudaMalloc(&device.trouble, sizeof kNothing));
    CUDA_CHECK(cudaMemcpy(device.trouble, &kNothing, sizeof kNothing, cudaMemcpyHostToDevice));
    return device;
}

Device& device() {
    thread_local Device opened = open_device();
    return opened;
}

[[noreturn]] void fail_from(unsigned long long key) {
    const int row = static_cast<int>(key >> 26 & 0xFFFFFF), column = static_cast<int>(key >> 4 & 0x3FFFFF);
    const float magnitude = key & 1 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    const float value = std::copysign(magnitude, key & 2 ? -1.0f : 1.0f);
    switch (static_cast<Trouble>(key >> 2 & 3)) {
        case Trouble::nvfp4_input: reference::fail_non_finite("NVFP4", row, column, value);
        case Trouble::fp8_input: reference::fail_non_finite("FP8", row, column, value);
        case Trouble::no_token: reference::fail_no_token(row);
    }
    fail("Unknown trouble on the device.");
}

// Throws the first trouble noted since the last copy to the host.
void throw_trouble() {
    if (device().calls == 0) return;
    device().calls = 0;
    unsigned long long key = kNothing;
    CUDA_CHECK(cudaMemcpyAsync(&key, device().trouble, sizeof key, cudaMemcpyDeviceToHost, stream()));
    CUDA_CHECK(cudaStreamSynchronize(stream()));
    if (key == kNothing) return;
    CUDA_CHECK(cudaMemcpyAsync(device().trouble, &kNothing, sizeof key, cudaMemcpyHostToDevice, stream()));
    fail_from(key);
}

}  // namespace

cudaStream_t stream() { return device().stream; }

Report next_report() {
    const unsigned long long last = 0x3FFE;  // 14 bits of the key; all ones are kNothing
    return {device().trouble, device().calls < last ? device().calls++ : last};
}

void start() { device(); }

void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    CUDA_CHECK(cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, stream()));
    return memory;
}

void release(void* memory) { cudaFreeAsync(memory, stream()); }

void to_device(void* destination, const void* host, std::size_t bytes) {
    if (bytes > 0) CUDA_CHECK(cudaMemcpyAsync(destination, host, bytes, cudaMemcpyHostToDevice, stream()));
}

void to_host(void* host, const void* source, std::size_t bytes) {
    if (bytes > 0) CUDA_CHECK(cudaMemcpyAsync(host, source, bytes, cudaMemcpyDeviceToHost, stream()));
    CUDA_CHECK(cudaStreamSynchronize(stream()));
    throw_trouble();
}

}  // namespace quads::kernels
