// Every CUDA call and every launch is checked, because an unchecked one fails silently: a program without a GPU would
// print its untouched output buffers and exit with 0.
#pragma once

#include <cuda_runtime.h>

#include "reference/check.hpp"

namespace quads::kernels {

// How to fix the errors that a user can do something about; empty for all others.
inline const char* hint_for(cudaError_t error) {
    switch (error) {
        case cudaErrorNoDevice:
        case cudaErrorInsufficientDriver: return " Run with --device cpu, or check the driver with nvidia-smi.";
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorInvalidDeviceFunction:
        case cudaErrorUnsupportedPtxVersion:
            return " This build has no code for this GPU: rebuild with make CUDA_ARCH=..., for example \"90a 120a\".";
        case cudaErrorMemoryAllocation: return " Use fewer prompts or a smaller model, or free memory of the GPU.";
        default: return "";
    }
}

inline void cuda_check(cudaError_t error, const char* call, const char* file, int line) {
    if (error == cudaSuccess) return;
    cudaGetLastError();  // forget it, or the next launch would be blamed for it
    fail("CUDA: ", cudaGetErrorString(error), " in ", call, " (", file, ":", line, ").", hint_for(error));
}

}  // namespace quads::kernels

// Throws quads::Error where a runtime call fails.
#define CUDA_CHECK(call) ::quads::kernels::cuda_check((call), #call, __FILE__, __LINE__)

// After a launch: throws where it could not start. Errors while it runs appear at the next copy to the host.
#define CUDA_CHECK_LAUNCH(kernel) ::quads::kernels::cuda_check(cudaGetLastError(), #kernel, __FILE__, __LINE__)
