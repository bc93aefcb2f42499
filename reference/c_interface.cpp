// The C interface: errors, codecs, NVFP4, FP8 and the GEMMs.
#include "reference/c_interface.hpp"

#include <cstdio>

#include "reference/codec.hpp"
#include "reference/exact_math.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_w4a4.hpp"
#include "reference/oracles.hpp"
#include "reference/parallel.hpp"

namespace quads::c_interface {
namespace {

// A fixed buffer: reporting an error must not be able to fail.
thread_local char last_error[1024] = "";

template <typename In, typename Out, typename Convert>
int elementwise(const In* in, std::int64_t n, Out* out, const Convert& convert) {
    return guarded([&] {
        check_arrays(in, out);
        check_sizes({{"n", n, 0}});
        for (std::int64_t i = 0; i < n; ++i) out[i] = convert(in[i]);
    });
}

}  // namespace

int report_error(int code, const char* sentence) noexcept {
    std::snprintf(last_error, sizeof last_error, "%s", sentence);
    return code;
}

extern "C" {

const char* quads_error_message(void) { return last_error; }

int quads_set_threads(int threads) {
    return guarded([&] {
        check_sizes({{"threads", threads, 0}});
        set_threads(threads);
    });
}

int quads_e2m1_encode(const float* x, int64_t n, uint8_t* codes) { return elementwise(x, n, codes, e2m1_encode); }
int quads_e2m1_decode(const uint8_t* codes, int64_t n, float* x) { return elementwise(codes, n, x, e2m1_decode); }
int quads_e4m3_encode(const float* x, int64_t n, uint8_t* codes) { return elementwise(x, n, codes, e4m3_encode); }
int quads_e4m3_decode(const uint8_t* codes, int64_t n, float* x) { return elementwise(codes, n, x, e4m3_decode); }
int quads_bf16_encode(const float* x, int64_t n, uint16_t* bits) { return elementwise(x, n, bits, bf16_bits); }
int quads_bf16_decode(const uint16_t* bits, int64_t n, float* x) { return elementwise(bits, n, x, bf16_from_bits); }
int quads_bf16_round(const float* x, int64_t n, float* y) { return elementwise(x, n, y, bf16_round); }
int quads_exact_exp(const float* x, int64_t n, float* y) { return elementwise(x, n, y, exact_exp); }
int quads_exact_log(const float* x, int64_t n, float* y) { return elementwise(x, n, y, exact_log); }
int quads_exact_sigmoid(const float* x, int64_t n, float* y) { return elementwise(x, n, y, exact_sigmoid); }
int quads_exact_silu(const float* x, int64_t n, float* y) { return elementwise(x, n, y, exact_silu); }
int quads_exact_rsqrt(const float* x, int64_t n, float* y) { return elementwise(x, n, y, exact_rsqrt); }

int quads_pack_codes(const uint8_t* codes, int rows, int columns, uint8_t* packed) {
    return guarded([&] {
        check_arrays(codes, packed);
        check_sizes({{"rows", rows, 0}, {"columns", columns, 0}});
        for (int row = 0; row < rows; ++row, codes += columns) {
            for (int k = 0; k < columns; k += 2) {
                *packed++ = pack_codes(codes[k] & 15, k + 1 < columns ? codes[k + 1] & 15 : 0);
            }
        }
    });
}

int quads_unpack_codes(const uint8_t* packed, int rows, int columns, uint8_t* codes) {
    return guarded([&] {
        check_arrays(packed, codes);
        check_sizes({{"rows", rows, 0}, {"columns", columns, 0}});
        for (int row = 0; row < rows; ++row, packed += (columns + 1) / 2) {
            for (int k = 0; k < columns; ++k) *codes++ = code_at(packed, k);
        }
    });
}

int quads_quantize_nvfp4(const float* x, const int* offsets, int E, int M, int K, int outer_scale, uint8_t* codes,
                         uint8_t* scales, float* outer) {
    return guarded([&] {
        check_arrays(x, codes, scales, outer);
        reference::quantize_nvfp4(x, RowGroups(offsets, E, M), M, K, nvfp4(codes, scales, outer, outer_scale));
    });
}

int quads_dequantize_nvfp4(const uint8_t* codes, const uint8_t* scales, const float* outer, const int* offsets, int E,
                           int M, int K, int outer_scale, int with_outer, float* x) {
    return guarded([&] {
        check_arrays(codes, scales, outer, x);
        reference::dequantize_nvfp4(nvfp4(codes, scales, outer, outer_scale), RowGroups(offsets, E, M), M, K,
                                    with_outer != 0, x);
    });
}

int quads_quantize_nvfp4_residual(const float* x, const uint8_t* codes, const uint8_t* scales, const float* outer,
                                  const int* offsets, int E, int M, int K, int outer_scale, float ratio, int selection,
                                  uint8_t* residual_codes, uint8_t* residual_scales) {
    return guarded([&] {
        check_arrays(x, codes, scales, outer, residual_codes, residual_scales);
        check_choice("selection", selection, 3);
        const ResidualSelection selections[] = {ResidualSelection::batch, ResidualSelection::token,
                                                ResidualSelection::random};
        reference::quantize_nvfp4_residual(x, nvfp4(codes, scales, outer, outer_scale), RowGroups(offsets, E, M), M, K,
                                           ratio, selections[selection],
                                           nvfp4(residual_codes, residual_scales, nullptr, outer_scale));
    });
}

int quads_count_code_flips(const float* a, const float* b, int M, int K, int* flips) {
    return guarded([&] {
        check_arrays(a, b, flips);
        check_sizes({{"M", M, 0}});
        reference::count_code_flips(a, b, M, K, flips);
    });
}

int quads_gemm_w4a4(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer, int x_outer_scale,
                    const uint8_t* w_codes, const uint8_t* w_scales, const float* w_outer, const int* offsets, int E,
                    int M, int N, int K, float* y) {
    return guarded([&] {
        check_arrays(x_codes, x_scales, x_outer, w_codes, w_scales, w_outer, y);
        check_sizes({{"N", N, 0}, {"K", K, 1}});
        reference::fast::gemm_w4a4(nvfp4(x_codes, x_scales, x_outer, x_outer_scale),
                                   nvfp4(w_codes, w_scales, w_outer, QUADS_OUTER_GROUP), RowGroups(offsets, E, M), M, N,
                                   K, y);
    });
}

int quads_gemm_w4a4_residual(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer, int x_outer_scale,
                             const uint8_t* residual_codes, const uint8_t* residual_scales, const uint8_t* w_codes,
                             const uint8_t* w_scales, const float* w_outer, const int* offsets, int E, int M, int N,
                             int K, float* y) {
    return guarded([&] {
        check_arrays(x_codes, x_scales, x_outer, residual_codes, residual_scales, w_codes, w_scales, w_outer, y);
        check_sizes({{"N", N, 0}, {"K", K, 1}});
        reference::fast::gemm_w4a4_residual(nvfp4(x_codes, x_scales, x_outer, x_outer_scale),
                                            nvfp4(residual_codes, residual_scales, nullptr, x_outer_scale),
                                            nvfp4(w_codes, w_scales, w_outer, QUADS_OUTER_GROUP),
                                            RowGroups(offsets, E, M), M, N, K, y);
    });
}

int quads_gemm_w4a4_exact(const uint8_t* x_codes, const uint8_t* x_scales, const uint8_t* residual_codes,
                          const uint8_t* residual_scales, const uint8_t* w_codes, const uint8_t* w_scales,
                          const int* offsets, int E, int M, int N, int K, int64_t* sum, int64_t* magnitude) {
    return guarded([&] {
        check_arrays(x_codes, x_scales, w_codes, w_scales, sum, magnitude);
        check((residual_codes == nullptr) == (residual_scales == nullptr),
              "residual_codes and residual_scales are one array and one NULL, expected two of a kind.");
        check_sizes({{"N", N, 0}});
        const Nvfp4 residual = nvfp4(residual_codes, residual_scales, nullptr, QUADS_OUTER_ROW);
        reference::gemm_w4a4_exact(
            nvfp4(x_codes, x_scales, nullptr, QUADS_OUTER_ROW), residual_codes != nullptr ? &residual : nullptr,
            nvfp4(w_codes, w_scales, nullptr, QUADS_OUTER_GROUP), RowGroups(offsets, E, M), M, N, K, sum, magnitude);
    });
}

int quads_gemm_bf16_tensor_core(const float* x, const float* w, const float* w_outer, const int* offsets, int E, int M,
                                int N, int K, float* y) {
    return guarded([&] {
        check_arrays(x, w, y);
        check_sizes({{"N", N, 0}, {"K", K, 1}});
        reference::gemm_bf16_tensor_core(x, w, w_outer, RowGroups(offsets, E, M), M, N, K, y);
    });
}

int quads_gemm_w4a4_tensor_core(const uint8_t* x_codes, const uint8_t* x_scales, const float* x_outer,
                                int x_outer_scale, const uint8_t* w_codes, const uint8_t* w_scales,
                                const float* w_outer, const int* offsets, int E, int M, int N, int K, float* y) {
    return guarded([&] {
        check_arrays(x_codes, x_scales, x_outer, w_codes, w_scales, w_outer, y);
        check_sizes({{"N", N, 0}, {"K", K, 1}});
        reference::gemm_w4a4_tensor_core(nvfp4(x_codes, x_scales, x_outer, x_outer_scale),
                                         nvfp4(w_codes, w_scales, w_outer, QUADS_OUTER_GROUP), RowGroups(offsets, E, M),
                                         M, N, K, y);
    });
}

int quads_gemm_bf16(const float* x, const float* w, const float* w_outer, const int* offsets, int E, int M, int N,
                    int K, float* y) {
    return guarded([&] {
        check_arrays(x, w, y);
        check_sizes({{"N", N, 0}, {"K", K, 1}});
        reference::fast::gemm_bf16(x, w, w_outer, RowGroups(offsets, E, M), M, N, K, y);
    });
}

int quads_gemm_bf16_backward_input(const float* dy, const float* w, const float* w_outer, const int* offsets, int E,
                                   int M, int N, int K, float* dx) {
    return guarded([&] {
        check_arrays(dy, w, dx);
        check_sizes({{"N", N, 0}, {"K", K, 1}});
        reference::fast::gemm_bf16_backward_input(dy, w, w_outer, RowGroups(offsets, E, M), M, N, K, dx);
    });
}

int quads_gemm_bf16_backward_weight(const float* dy, const float* x, const int* offsets, int E, int M, int N, int K,
                                    float* dw) {
    return guarded([&] {
        check_arrays(dy, x, dw);
        check_sizes({{"N", N, 0}, {"K", K, 1}});
        reference::fast::gemm_bf16_backward_weight(dy, x, RowGroups(offsets, E, M), M, N, K, dw);
    });
}

int quads_quantize_fp8(const float* x, const int* offsets, int E, int M, int K, int outer_scale, uint8_t* codes,
                       float* outer) {
    return guarded([&] {
        check_arrays(x, codes, outer);
        reference::quantize_fp8(x, RowGroups(offsets, E, M), M, K, fp8(codes, outer, outer_scale));
    });
}

int quads_dequantize_fp8(const uint8_t* codes, const float* outer, const int* offsets, int E, int M, int K,
                         int outer_scale, int with_outer, float* x) {
    return guarded([&] {
        check_arrays(codes, outer, x);
        check_sizes({{"K", K, 1}});
        reference::dequantize_fp8(fp8(codes, outer, outer_scale), RowGroups(offsets, E, M), M, K, with_outer != 0, x);
    });
}

int quads_gemm_fp8(const uint8_t* x_codes, const float* x_outer, int x_outer_scale, const uint8_t* w_codes,
                   const float* w_outer, const int* offsets, int E, int M, int N, int K, float* y) {
    return guarded([&] {
        check_arrays(x_codes, x_outer, w_codes, w_outer, y);
        check_sizes({{"N", N, 0}, {"K", K, 1}});
        reference::fast::gemm_fp8(fp8(x_codes, x_outer, x_outer_scale), fp8(w_codes, w_outer, QUADS_OUTER_GROUP),
                                  RowGroups(offsets, E, M), M, N, K, y);
    });
}

}  // extern "C"

}  // namespace quads::c_interface
