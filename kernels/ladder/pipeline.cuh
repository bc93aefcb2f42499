// Asynchronous copies into shared memory, clusters of thread blocks, and overlap with the neighbouring kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace quads::kernels::ladder {

// Copies 16 bytes in the background where `wanted`, without a branch; both addresses are multiples of 16.
__device__ inline void copy_16_async(bool wanted, void* shared, const void* global) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(wanted ? 1u : 0u)
                 : "memory");
}

// Copies 8 bytes in the background, or writes 8 zero bytes where `valid` is false.
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

// Clusters: thread blocks that run together and reach each other's shared memory, from compute capability 9.0 on.
__device__ inline int cluster_rank() {
    int rank = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

// Writes to `address` in the shared memory of thread block `rank` of the cluster, where there is one.
__device__ inline void store_to_rank(bool cluster, float* address, int rank, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (cluster) {
        asm volatile(
            "{ .reg .u32 there; mapa.shared::cluster.u32 there, %0, %1; st.shared::cluster.f32 [there], %2; }" ::"r"(
                static_cast<std::uint32_t>(__cvta_generic_to_shared(address))),
            "r"(rank), "f"(value)
            : "memory");
        return;
    }
#endif
    *address = value;
}

// A barrier of all threads of the cluster, or of the thread block where `cluster` is false. Work between arrive and
// wait overlaps the others'; each wait follows an arrive.
struct Barrier {
    bool cluster;

    __device__ void arrive() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (cluster) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
    }
    __device__ void wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (cluster) {
            asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
            return;
        }
#endif
        __syncthreads();
    }
};

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
