// SwiGLU and its backward: one thread per element; formulas in reference/swiglu.hpp.
#include "reference/swiglu.hpp"

#include "kernels/device.hpp"
#include "kernels/kernels.hpp"
#include "reference/codec.hpp"
#include "reference/exact_math.hpp"

namespace quads::kernels {
namespace {

__global__ void swiglu_kernel(const float* gate_up, std::int64_t n, int F, float* m) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const std::int64_t gate = i / F * 2 * F + i % F;
    m[i] = bf16_round(exact_silu(gate_up[gate]) * gate_up[gate + F]);
}

__global__ void swiglu_backward_kernel(const float* dm, const float* gate_up, std::int64_t n, int F, float* dgate_up) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const std::int64_t gate = i / F * 2 * F + i % F;
    const float z = gate_up[gate], up = gate_up[gate + F];
    const float y = exact_sigmoid(z);
    dgate_up[gate] = (dm[i] * up) * (y * (1.0f + z * (1.0f - y)));
    dgate_up[gate + F] = dm[i] * (z * y);
}

}  // namespace

void swiglu(const float* gate_up, int R, int F, float* m) {
    const std::int64_t n = static_cast<std::int64_t>(R) * F;
    if (n == 0) return;
    swiglu_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(gate_up, n, F, m);
    CUDA_CHECK_LAUNCH(swiglu_kernel);
}

void swiglu_backward(const float* dm, const float* gate_up, int R, int F, float* dgate_up) {
    const std::int64_t n = static_cast<std::int64_t>(R) * F;
    if (n == 0) return;
    swiglu_backward_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(dm, gate_up, n, F, dgate_up);
    CUDA_CHECK_LAUNCH(swiglu_backward_kernel);
}

}  // namespace quads::kernels
