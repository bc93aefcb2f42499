#include "reference/adamw.hpp"

#include <algorithm>
#include <cmath>

#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

constexpr std::int64_t kChunk = 256;
constexpr std::int64_t kPiece = 4096;  // elements a thread takes at least, in units of which AdamW is split
constexpr int kChunkGrain = 64;

int pieces(std::int64_t n, std::int64_t size) { return static_cast<int>((n + size - 1) / size); }

}  // namespace

void adamw(float* w, const float* grad, float* m, float* v, std::int64_t n, AdamwStep step) {
    const float rest1 = 1.0f - step.beta1, rest2 = 1.0f - step.beta2;
    parallel_ranges(pieces(n, kPiece), 2, [=](int first, int last) {
        const std::int64_t end = std::min(n, last * kPiece);
        for (std::int64_t i = first * kPiece; i < end; ++i) {
            const float g = grad[i] * step.gradient_scale;
            m[i] = step.beta1 * m[i] + rest1 * g;
            v[i] = step.beta2 * v[i] + rest2 * (g * g);
            const float update = (m[i] / step.correction1) / (sqrtf(v[i] / step.correction2) + step.epsilon);
            w[i] = w[i] - step.learning_rate * (update + step.weight_decay * w[i]);
        }
    });
}

void sum_squares(const float* x, std::int64_t n, float* partial, float* result) {
    const int chunks = pieces(n, kChunk);
    parallel_for(chunks, kChunkGrain, [=](int chunk) {
        const std::int64_t end = std::min(n, (chunk + 1) * kChunk);
        float sum = 0.0f;
        for (std::int64_t i = chunk * kChunk; i < end; ++i) sum = fmaf(x[i], x[i], sum);
        partial[chunk] = sum;
    });
    // Chunk c of a level reads elements 256 c and above and writes element c, so a level may overwrite its input.
    int left = chunks;
    while (left > 1) {
        const int next = pieces(left, kChunk);
        for (int chunk = 0; chunk < next; ++chunk) {
            const int end = std::min<int>(left, (chunk + 1) * kChunk);
            float sum = 0.0f;
            for (int i = chunk * kChunk; i < end; ++i) sum += partial[i];
            partial[chunk] = sum;
        }
        left = next;
    }
    *result = chunks > 0 ? partial[0] : 0.0f;
}

}  // namespace quads::reference
