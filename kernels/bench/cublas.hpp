// cuBLAS as the yardstick: y (M, N) = x (M, K) * w (N, K)^T with BF16 or FP8 (E4M3) operands and BF16 results. Used by
// the benchmark alone.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstdint>
#include <vector>

#include "kernels/bench/timing.hpp"
#include "reference/check.hpp"

namespace quads::bench {

enum class Precision { bf16, fp8 };

inline int bytes_of(Precision precision) { return precision == Precision::bf16 ? 2 : 1; }

// One shape of cublasLtMatmul and the algorithms that its heuristics propose for it.
class LtMatmul {
public:
    LtMatmul(Precision precision, int M, int N, int K);
    ~LtMatmul();
    LtMatmul(const LtMatmul&) = delete;
    LtMatmul& operator=(const LtMatmul&) = delete;

    int algorithms() const { return static_cast<int>(found_.size()); }  // 0: this shape is not supported
    void run(int algorithm, const void* x, const void* w, void* y) const;

private:
    cublasLtMatmulDesc_t operation_ = nullptr;
    cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
    std::vector<cublasLtMatmulHeuristicResult_t> found_;
};

// Microseconds of the fastest proposed algorithm, operands rotating past the cache. M is padded to a multiple of 16
// where FP8 needs it. Negative where cuBLAS has none.
double cublas_microseconds(Precision precision, int M, int N, int K);

// Microseconds of BF16 GEMMs of experts whose row counts are `rows` (all different weights): the faster of a loop of
// cuBLAS calls over the non-empty experts and one cublasGemmGroupedBatchedEx.
struct MoeTimes {
    double looped, grouped;  // grouped: negative where the library refuses it
};
MoeTimes cublas_moe_microseconds(const std::vector<int>& rows, int N, int K);

}  // namespace quads::bench
