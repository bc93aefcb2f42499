// Asynchronous copies into shared memory and overlap with the neighbouring kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace quads::kernels::ladder {

// Copies 16 bytes in the background, or writes 16 zero bytes where `valid` is false; both addresses are multiples
// of 16.
__device__ inline void copy_16_async(void* shared, const void* global, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ inline void copy_8_async(void* shared, const void* global, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(valid ? 8 : 0)
                 : "memory");
}

// Closes the group of this thread's copies since the last call.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` groups of this thread are under way. Other threads' copies need a barrier after it.
template <int pending>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Programmatic dependent launch: lets the next kernel on the stream start, and waits until the previous one has ended.
// Without effect in a kernel that was launched in the ordinary way, and before compute capability 9.0.
__device__ inline void start_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace quads::kernels::ladder
