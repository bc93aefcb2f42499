// SwiGLU: m[r,f] = bf16(silu(gate[r,f]) * up[r,f]). Shazeer 2020.
#pragma once

namespace quads::reference {

void swiglu(const float* gate_up,  // (R, 2F): columns 0 .. F-1 gate, F .. 2F-1 up
            int R, int F,
            float* m);             // (R, F) BF16-valued

// With z = gate and y = sigmoid(z):  d gate = (dm * up) * (y * (1 + z * (1 - y))),  d up = dm * (z * y).
// The rounding of m is passed through.
void swiglu_backward(const float* dm,       // (R, F)
                     const float* gate_up,  // (R, 2F)
                     int R, int F,
                     float* dgate_up);      // (R, 2F) overwritten

}  // namespace quads::reference
