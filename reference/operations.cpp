#include "src/operations.hpp"

#include <cstdlib>
#include <cstring>

#include "reference/memory.hpp"

namespace quads {
namespace {

void copy(void* destination, const void* source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(destination, source, bytes);
}

Operations plain_loops() {
    Operations table{};
    table.device = "cpu";
    table.allocate = allocate_memory;
    table.release = std::free;
    table.to_device = copy;
    table.to_host = copy;
    table.quantize_nvfp4 = reference::quantize_nvfp4;
    table.dequantize_nvfp4 = reference::dequantize_nvfp4;
    table.quantize_nvfp4_residual = reference::quantize_nvfp4_residual;
    table.count_code_flips = reference::count_code_flips;
    table.gemm_w4a4 = reference::gemm_w4a4;
    table.gemm_w4a4_residual = reference::gemm_w4a4_residual;
    table.gemm_bf16 = reference::gemm_bf16;
    table.gemm_bf16_backward_input = reference::gemm_bf16_backward_input;
    table.gemm_bf16_backward_weight = reference::gemm_bf16_backward_weight;
    table.quantize_fp8 = reference::quantize_fp8;
    table.dequantize_fp8 = reference::dequantize_fp8;
    table.gemm_fp8 = reference::gemm_fp8;
    table.rmsnorm = reference::rmsnorm;
    table.rmsnorm_backward = reference::rmsnorm_backward;
    table.swiglu = reference::swiglu;
    table.swiglu_backward = reference::swiglu_backward;
    table.split_qkv = reference::split_qkv;
    table.attention = reference::attention;
    table.attention_backward = reference::attention_backward;
    table.router_topk = reference::router_topk;
    table.router_topk_backward = reference::router_topk_backward;
    table.route_rows = reference::route_rows;
    table.gather_rows = reference::gather_rows;
    table.combine_rows = reference::combine_rows;
    table.combine_rows_backward = reference::combine_rows_backward;
    table.embed = reference::embed;
    table.embed_backward = reference::embed_backward;
    table.add = reference::add;
    table.round_bf16 = reference::round_bf16;
    table.scatter_rows = reference::scatter_rows;
    table.scatter_rows_int = reference::scatter_rows_int;
    table.log_softmax = reference::log_softmax;
    table.log_softmax_backward = reference::log_softmax_backward;
    table.sample = reference::sample;
    table.adamw = reference::adamw;
    table.sum_squares = reference::sum_squares;
    return table;
}

Operations fast_loops() {
    Operations table = plain_loops();
    table.gemm_w4a4 = reference::fast::gemm_w4a4;
    table.gemm_w4a4_residual = reference::fast::gemm_w4a4_residual;
    table.gemm_bf16 = reference::fast::gemm_bf16;
    table.gemm_bf16_backward_input = reference::fast::gemm_bf16_backward_input;
    table.gemm_bf16_backward_weight = reference::fast::gemm_bf16_backward_weight;
    table.gemm_fp8 = reference::fast::gemm_fp8;
    return table;
}

}  // namespace

const Operations& reference_operations() {
    static const Operations table = plain_loops();
    return table;
}

const Operations& cpu_operations() {
    static const Operations table = fast_loops();
    return table;
}

}  // namespace quads
