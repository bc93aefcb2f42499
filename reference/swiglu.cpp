#include "reference/swiglu.hpp"

#include <cstddef>

#include "reference/codec.hpp"
#include "reference/exact_math.hpp"
#include "reference/parallel.hpp"

namespace quads::reference {
namespace {

constexpr int kRowGrain = 128;

}  // namespace

void swiglu(const float* gate_up, int R, int F, float* m) {
    parallel_for(R, kRowGrain, [=](int r) {
        const float* gate = gate_up + std::size_t(r) * 2 * F;
        const float* up = gate + F;
        float* out = m + std::size_t(r) * F;
        for (int f = 0; f < F; ++f) out[f] = bf16_round(exact_silu(gate[f]) * up[f]);
    });
}

void swiglu_backward(const float* dm, const float* gate_up, int R, int F, float* dgate_up) {
    parallel_for(R, kRowGrain, [=](int r) {
        const float* gradient = dm + std::size_t(r) * F;
        const float* gate = gate_up + std::size_t(r) * 2 * F;
        const float* up = gate + F;
        float* d_gate = dgate_up + std::size_t(r) * 2 * F;
        float* d_up = d_gate + F;
        for (int f = 0; f < F; ++f) {
            const float z = gate[f];
            const float y = exact_sigmoid(z);
            d_gate[f] = (gradient[f] * up[f]) * (y * (1.0f + z * (1.0f - y)));
            d_up[f] = gradient[f] * (z * y);
        }
    });
}

}  // namespace quads::reference
