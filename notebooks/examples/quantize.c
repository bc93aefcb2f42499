/* One row of 17 values through NVFP4 and back, from C.
 *   make library
 *   cc -std=c99 -I. notebooks/examples/quantize.c -Lbuild -lquads_reference -Wl,-rpath,$PWD/build -o build/quantize
 *   build/quantize */
#include <stdio.h>

#include "reference/quads_reference.h"

enum { K = 17, B = (K + 15) / 16 };

int main(void) {
    float x[K], back[K], outer[1];
    uint8_t codes[8 * B], scales[B];
    int k;
    for (k = 0; k < K; ++k) x[k] = 0.25f * (float)(k - 8);
    if (quads_quantize_nvfp4(x, NULL, 1, 1, K, QUADS_OUTER_ROW, codes, scales, outer) != QUADS_OK ||
        quads_dequantize_nvfp4(codes, scales, outer, NULL, 1, 1, K, QUADS_OUTER_ROW, 1, back) != QUADS_OK) {
        fprintf(stderr, "%s\n", quads_error_message());
        return 1;
    }
    for (k = 0; k < K; ++k) printf("%6.2f -> %9.6f\n", x[k], back[k]);

    x[3] = 1.0f / 0.0f; /* what an error looks like */
    if (quads_quantize_nvfp4(x, NULL, 1, 1, K, QUADS_OUTER_ROW, codes, scales, outer) != QUADS_ERROR_ARGUMENT) return 1;
    printf("refused: %s\n", quads_error_message());
    return 0;
}
