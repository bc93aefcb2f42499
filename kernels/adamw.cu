// AdamW, one thread per weight, and the sum of squares in chunks of 256, one warp per chunk: reference/adamw.hpp.
#include "reference/adamw.hpp"

#include <utility>

#include "kernels/kernels.hpp"
#include "kernels/warp.cuh"

namespace quads::kernels {
namespace {

constexpr int kChunk = 256;  // part of the operation's definition: it fixes the order of the sum

__global__ void adamw_kernel(float* w, const float* grad, float* m, float* v, std::int64_t n, AdamwStep step) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float g = grad[i] * step.gradient_scale;
    m[i] = step.beta1 * m[i] + (1.0f - step.beta1) * g;
    v[i] = step.beta2 * v[i] + (1.0f - step.beta2) * (g * g);
    const float direction = (m[i] / step.correction1) / (sqrtf(v[i] / step.correction2) + step.epsilon);
    w[i] = w[i] - step.learning_rate * (direction + step.weight_decay * w[i]);
}

__global__ void chunk_sums_kernel(const float* x, std::int64_t n, bool squared, float* sums) {
    const std::int64_t begin = static_cast<std::int64_t>(global_warp()) * kChunk;
    if (begin >= n) return;
    const int count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), n - begin));
    const float sum = squared ? ascending_fma(count, [&](int i) { return make_float2(x[begin + i], x[begin + i]); })
                              : ascending_sum(count, [&](int i) { return x[begin + i]; });
    if (lane_id() == 0) sums[global_warp()] = sum;
}

}  // namespace

void adamw(float* w, const float* grad, float* m, float* v, std::int64_t n, AdamwStep step) {
    if (n == 0) return;
    adamw_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(w, grad, m, v, n, step);
    CUDA_CHECK_LAUNCH(adamw_kernel);
}

void sum_squares(const float* x, std::int64_t n, float* partial, float* result) {
    if (n == 0) {
        CUDA_CHECK(cudaMemsetAsync(result, 0, sizeof *result, stream()));
        return;
    }
    // Each pass reads one half of `partial` and writes the other; the pass that leaves one sum writes the result.
    float* halves[2] = {partial, partial + n / kChunk + 2};
    bool squared = true;
    do {
        const std::int64_t chunks = (n + kChunk - 1) / kChunk;
        float* sums = chunks == 1 ? result : halves[0];
        chunk_sums_kernel<<<blocks_for(chunks, kWarps), kThreads, 0, stream()>>>(x, n, squared, sums);
        CUDA_CHECK_LAUNCH(chunk_sums_kernel);
        std::swap(halves[0], halves[1]);
        x = sums;
        n = chunks;
        squared = false;
    } while (n > 1);
}

}  // namespace quads::kernels
