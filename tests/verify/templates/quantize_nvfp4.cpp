// NVFP4 quantiser: a correct start, slow on purpose. Make it yours, then: make verify OP=quantize_nvfp4
// KERNEL=this_file
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "reference/codec.hpp"
#include "tests/verify/kernel.h"

namespace {

float amax(const float* x, int n) {
    float largest = 0.0f;
    for (int i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
    return largest;
}

void quantize_row(const float* x, int K, uint8_t* codes, uint8_t* scales, float* outer) {
    const float row_amax = amax(x, K);
    const float encode = row_amax == 0.0f ? 1.0f : std::min(2688.0f / row_amax, FLT_MAX);
    *outer = 1.0f / encode;
    for (int b = 0; b < quads::blocks_of(K); ++b) {
        const int first = 16 * b, columns = std::min(16, K - first);
        scales[b] = quads::e4m3_encode(amax(x + first, columns) * (encode * (1.0f / 6.0f)));
        const float scale = quads::e4m3_decode(scales[b]);
        const float inverse = std::min(1.0f / (scale * *outer), FLT_MAX);
        uint8_t code[16] = {};
        for (int i = 0; i < columns && scale != 0.0f; ++i) code[i] = quads::e2m1_encode(x[first + i] * inverse);
        for (int i = 0; i < 8; ++i) codes[8 * b + i] = quads::pack_codes(code[2 * i], code[2 * i + 1]);
    }
}

}  // namespace

void kernel_quantize_nvfp4(const float* x, int M, int K, uint8_t* codes, uint8_t* scales, float* outer) {
    const int B = quads::blocks_of(K);
    for (int m = 0; m < M; ++m) quantize_row(x + m * K, K, codes + m * 8 * B, scales + m * B, outer + m);
}
