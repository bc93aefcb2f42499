#include "kernels/bench/cublas.hpp"

namespace quads::bench {
namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;

void cublas_check(cublasStatus_t status, const char* call) {
    check(status == CUBLAS_STATUS_SUCCESS, "cuBLAS: ", cublasGetStatusString(status), " in ", call, ".");
}
#define CUBLAS_CHECK(call) cublas_check((call), #call)

cublasLtHandle_t lt_handle() {
    static const cublasLtHandle_t handle = [] {
        cublasLtHandle_t created = nullptr;
        CUBLAS_CHECK(cublasLtCreate(&created));
        return created;
    }();
    return handle;
}

void* workspace() {
    static const Memory<std::uint8_t> memory(kWorkspace);
    return memory.data();
}

cublasHandle_t handle() {
    static const cublasHandle_t handle = [] {
        cublasHandle_t created = nullptr;
        CUBLAS_CHECK(cublasCreate(&created));
        CUBLAS_CHECK(cublasSetStream(created, kernels::stream()));
        CUBLAS_CHECK(cublasSetWorkspace(created, workspace(), kWorkspace));
        return created;
    }();
    return handle;
}

}  // namespace

// cuBLAS counts columns first: y^T (N, M) = w (N, K) * x^T (K, M), so w is the transposed first operand.
LtMatmul::LtMatmul(Precision precision, int M, int N, int K) {
    const cudaDataType type = precision == Precision::bf16 ? CUDA_R_16BF : CUDA_R_8F_E4M3;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    CUBLAS_CHECK(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CUBLAS_CHECK(
        cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&w_, type, K, N, K));
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&x_, type, K, M, K));
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&y_, CUDA_R_16BF, N, M, N));
    cublasLtMatmulPreference_t preference = nullptr;
    CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                                      sizeof kWorkspace));
    found_.resize(4);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        lt_handle(), operation_, w_, x_, y_, y_, preference, static_cast<int>(found_.size()), found_.data(), &count);
    found_.resize(status == CUBLAS_STATUS_SUCCESS ? count : 0);
    CUBLAS_CHECK(cublasLtMatmulPreferenceDestroy(preference));
}

LtMatmul::~LtMatmul() {
    cublasLtMatrixLayoutDestroy(y_);
    cublasLtMatrixLayoutDestroy(x_);
    cublasLtMatrixLayoutDestroy(w_);
    cublasLtMatmulDescDestroy(operation_);
}

void LtMatmul::run(int algorithm, const void* x, const void* w, void* y) const {
    const float one = 1.0f, zero = 0.0f;
    CUBLAS_CHECK(cublasLtMatmul(lt_handle(), operation_, &one, w, w_, x, x_, &zero, y, y_, y, y_,
                                &found_[algorithm].algo, workspace(), kWorkspace, kernels::stream()));
}

double cublas_microseconds(Precision precision, int M, int N, int K) {
    const int rows = precision == Precision::fp8 ? (M + 15) / 16 * 16 : M;
    const LtMatmul matmul(precision, rows, N, K);
    const std::size_t size = static_cast<std::size_t>(N) * K * bytes_of(precision);
    const int copies = copies_past_cache(static_cast<double>(size));
    const Memory<std::uint8_t> w(size * copies), x(static_cast<std::size_t>(rows) * K * bytes_of(precision));
    const Memory<std::uint16_t> y(static_cast<std::size_t>(rows) * N);
    if (precision == Precision::bf16) {
        random_bf16(reinterpret_cast<std::uint16_t*>(w.data()), w.size() / 2, 1);
        random_bf16(reinterpret_cast<std::uint16_t*>(x.data()), x.size() / 2, 2);
    } else {
        random_bytes(w.data(), w.size(), 0x20, 0x40, 1);
        random_bytes(x.data(), x.size(), 0x20, 0x40, 2);
    }
    double best = -1.0;
    for (int algorithm = 0; algorithm < matmul.algorithms(); ++algorithm) {
        const double time = microseconds(std::max(copies, 20), [&](int i) {
            matmul.run(algorithm, x.data(), w.data() + i % copies * size, y.data());
        });
        if (best < 0.0 || time < best) best = time;
    }
    return best;
}

MoeTimes cublas_moe_microseconds(const std::vector<int>& rows, int N, int K) {
    constexpr int kCopies = 3;
    const int E = static_cast<int>(rows.size());
    int R = 0;
    for (int count : rows) R += count;
    const std::size_t matrix = static_cast<std::size_t>(N) * K;
    const Memory<std::uint16_t> w(matrix * E * kCopies), x(static_cast<std::size_t>(R) * K),
        y(static_cast<std::size_t>(R) * N);
    random_bf16(w.data(), w.size(), 1);
    random_bf16(x.data(), x.size(), 2);
    const float one = 1.0f, zero = 0.0f;
    CUBLAS_CHECK(cublasSetStream(handle(), kernels::stream()));

    const double looped = microseconds(kCopies * 2, [&](int i) {
        std::size_t row = 0;
        for (int e = 0; e < E; row += rows[e++]) {
            if (rows[e] == 0) continue;
            CUBLAS_CHECK(cublasGemmEx(handle(), CUBLAS_OP_T, CUBLAS_OP_N, N, rows[e], K, &one,
                                      w.data() + (static_cast<std::size_t>(i % kCopies) * E + e) * matrix, CUDA_R_16BF,
                                      K, x.data() + row * K, CUDA_R_16BF, K, &zero, y.data() + row * N, CUDA_R_16BF, N,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        }
    });

    // One group of one matrix per non-empty expert.
    std::vector<int> n, all_N, all_K, sizes;
    std::vector<cublasOperation_t> transposed, plain;
    std::vector<float> ones, zeros;
    std::vector<const void*> host_w, host_x;
    std::vector<void*> host_y;
    for (int copy = 0; copy < kCopies; ++copy) {
        std::size_t row = 0;
        for (int e = 0; e < E; row += rows[e++]) {
            if (rows[e] == 0) continue;
            host_w.push_back(w.data() + (static_cast<std::size_t>(copy) * E + e) * matrix);
            host_x.push_back(x.data() + row * K);
            host_y.push_back(y.data() + row * N);
            if (copy > 0) continue;
            n.push_back(rows[e]), all_N.push_back(N), all_K.push_back(K), sizes.push_back(1);
            transposed.push_back(CUBLAS_OP_T), plain.push_back(CUBLAS_OP_N), ones.push_back(1.0f),
                zeros.push_back(0.0f);
        }
    }
    const Memory<const void*> device_w(host_w.size()), device_x(host_x.size());
    const Memory<void*> device_y(host_y.size());
    CUDA_CHECK(cudaMemcpy(device_w.data(), host_w.data(), host_w.size() * sizeof(void*), cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(device_x.data(), host_x.data(), host_x.size() * sizeof(void*), cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(device_y.data(), host_y.data(), host_y.size() * sizeof(void*), cudaMemcpyHostToDevice));
    const int count = static_cast<int>(n.size());
    const auto grouped = [&](int i) {
        const int first = i % kCopies * count;
        return cublasGemmGroupedBatchedEx(
            handle(), transposed.data(), plain.data(), all_N.data(), n.data(), all_K.data(), ones.data(),
            device_w.data() + first, CUDA_R_16BF, all_K.data(), device_x.data() + first, CUDA_R_16BF, all_K.data(),
            zeros.data(), device_y.data() + first, CUDA_R_16BF, all_N.data(), count, sizes.data(), CUBLAS_COMPUTE_32F);
    };
    const bool works = grouped(0) == CUBLAS_STATUS_SUCCESS;
    CUDA_CHECK(cudaStreamSynchronize(kernels::stream()));
    return {looped, works ? microseconds(kCopies * 2, [&](int i) { CUBLAS_CHECK(grouped(i)); }) : -1.0};
}

}  // namespace quads::bench
