// Device memory for the verify tool; linked to the user's .cu file, found by name.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace {

void require(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "verify: %s: %s\n", what, cudaGetErrorString(error));
    std::_Exit(2);
}

}  // namespace

extern "C" void* verify_device_allocate(std::size_t bytes) {
    void* memory = nullptr;
    require(cudaMalloc(&memory, bytes), "no memory on a GPU");
    return memory;
}

extern "C" void verify_device_release(void* memory) { require(cudaFree(memory), "release"); }

extern "C" void verify_device_copy(void* destination, const void* source, std::size_t bytes) {
    require(cudaMemcpy(destination, source, bytes, cudaMemcpyDefault), "copy");
}

// A launch that never happened is found first, then what went wrong while it ran; after the latter the context is lost.
extern "C" const char* verify_device_finish() {
    const cudaError_t launch = cudaGetLastError();
    if (launch != cudaSuccess) return cudaGetErrorString(launch);
    const cudaError_t run = cudaDeviceSynchronize();
    if (run == cudaSuccess) return "";
    std::printf("  the kernel failed: %s\n", cudaGetErrorString(run));
    std::fflush(stdout);
    std::_Exit(1);
}
