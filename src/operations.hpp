// The table of operations that the model, the rollout and the trainer are written over. reference/ fills one table,
// kernels/ fills another with the same signatures; only the table knows where its buffers live, so nothing in src/
// dereferences a buffer of an operation.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "reference/adamw.hpp"
#include "reference/attention.hpp"
#include "reference/check.hpp"
#include "reference/embedding.hpp"
#include "reference/gemm_bf16.hpp"
#include "reference/gemm_fp8.hpp"
#include "reference/gemm_w4a4.hpp"
#include "reference/log_softmax.hpp"
#include "reference/nvfp4.hpp"
#include "reference/rmsnorm.hpp"
#include "reference/router.hpp"
#include "reference/swiglu.hpp"

namespace quads {

struct Operations {
    const char* device;  // "cpu" or "cuda"

    // Memory of the device. Copies take bytes; to_host waits for the operations before it, and reports their errors.
    void* (*allocate)(std::size_t bytes);
    void (*release)(void* memory);
    void (*to_device)(void* destination, const void* host, std::size_t bytes);
    void (*to_host)(void* host, const void* source, std::size_t bytes);

    // Each entry is documented in the reference/ header that declares it.
    decltype(&reference::quantize_nvfp4) quantize_nvfp4;
    decltype(&reference::dequantize_nvfp4) dequantize_nvfp4;
    decltype(&reference::quantize_nvfp4_residual) quantize_nvfp4_residual;
    decltype(&reference::count_code_flips) count_code_flips;
    decltype(&reference::gemm_w4a4) gemm_w4a4;
    decltype(&reference::gemm_w4a4_residual) gemm_w4a4_residual;
    decltype(&reference::gemm_bf16) gemm_bf16;
    decltype(&reference::gemm_bf16_backward_input) gemm_bf16_backward_input;
    decltype(&reference::gemm_bf16_backward_weight) gemm_bf16_backward_weight;
    decltype(&reference::quantize_fp8) quantize_fp8;
    decltype(&reference::dequantize_fp8) dequantize_fp8;
    decltype(&reference::gemm_fp8) gemm_fp8;
    decltype(&reference::rmsnorm) rmsnorm;
    decltype(&reference::rmsnorm_backward) rmsnorm_backward;
    decltype(&reference::swiglu) swiglu;
    decltype(&reference::swiglu_backward) swiglu_backward;
    decltype(&reference::split_qkv) split_qkv;
    decltype(&reference::attention) attention;
    decltype(&reference::attention_backward) attention_backward;
    decltype(&reference::router_topk) router_topk;
    decltype(&reference::router_topk_backward) router_topk_backward;
    decltype(&reference::route_rows) route_rows;
    decltype(&reference::gather_rows) gather_rows;
    decltype(&reference::combine_rows) combine_rows;
    decltype(&reference::combine_rows_backward) combine_rows_backward;
    decltype(&reference::embed) embed;
    decltype(&reference::embed_backward) embed_backward;
    decltype(&reference::add) add;
    decltype(&reference::round_bf16) round_bf16;
    decltype(&reference::scatter_rows) scatter_rows;
    decltype(&reference::scatter_rows_int) scatter_rows_int;
    decltype(&reference::log_softmax) log_softmax;
    decltype(&reference::log_softmax_backward) log_softmax_backward;
    decltype(&reference::sample) sample;
    decltype(&reference::adamw) adamw;
    decltype(&reference::sum_squares) sum_squares;
};

// The specification itself: plain loops.
const Operations& reference_operations();

// The same bits with the vectorised GEMMs: what `--device cpu` runs.
const Operations& cpu_operations();

// The CUDA kernels; Error with the reason where no usable GPU is present or this build has no CUDA.
const Operations& cuda_operations();

// An array in a table's memory, released with it.
template <typename Element>
class Buffer {
public:
    Buffer() = default;
    Buffer(const Operations& operations, std::size_t size) : operations_(&operations), size_(size) {
        data_ = static_cast<Element*>(operations.allocate(size * sizeof(Element)));
    }
    Buffer(const Operations& operations, const std::vector<Element>& values) : Buffer(operations, values.size()) {
        upload(values);
    }
    Buffer(Buffer&& other) noexcept { *this = static_cast<Buffer&&>(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(operations_, other.operations_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Buffer() {
        if (data_) operations_->release(data_);
    }

    Element* data() const { return data_; }
    std::size_t size() const { return size_; }

    void upload(const std::vector<Element>& values) {
        check(values.size() <= size_, "A buffer of ", size_, " elements cannot take ", values.size(), ".");
        operations_->to_device(data_, values.data(), values.size() * sizeof(Element));
    }
    // The first n elements, or all.
    std::vector<Element> download(std::size_t n) const {
        std::vector<Element> values(n);
        operations_->to_host(values.data(), data_, n * sizeof(Element));
        return values;
    }
    std::vector<Element> download() const { return download(size_); }

private:
    const Operations* operations_ = nullptr;
    Element* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace quads
