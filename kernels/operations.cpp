// The table of operations, filled by the kernels. Every entry has the reference's signature, or it would not compile.
#include "src/operations.hpp"

#include "kernels/kernels.hpp"

namespace quads {
namespace {

Operations cuda_table() {
    kernels::start();
    Operations table{};
    table.device = "cuda";
    table.allocate = kernels::allocate;
    table.release = kernels::release;
    table.to_device = kernels::to_device;
    table.to_host = kernels::to_host;
    table.quantize_nvfp4 = kernels::quantize_nvfp4;
    table.dequantize_nvfp4 = kernels::dequantize_nvfp4;
    table.quantize_nvfp4_residual = kernels::quantize_nvfp4_residual;
    table.count_code_flips = kernels::count_code_flips;
    table.gemm_w4a4 = kernels::gemm_w4a4;
    table.gemm_w4a4_residual = kernels::gemm_w4a4_residual;
    table.gemm_bf16 = kernels::gemm_bf16;
    table.gemm_bf16_backward_input = kernels::gemm_bf16_backward_input;
    table.gemm_bf16_backward_weight = kernels::gemm_bf16_backward_weight;
    table.quantize_fp8 = kernels::quantize_fp8;
    table.dequantize_fp8 = kernels::dequantize_fp8;
    table.gemm_fp8 = kernels::gemm_fp8;
    table.rmsnorm = kernels::rmsnorm;
    table.rmsnorm_backward = kernels::rmsnorm_backward;
    table.swiglu = kernels::swiglu;
    table.swiglu_backward = kernels::swiglu_backward;
    table.split_qkv = kernels::split_qkv;
    table.attention = kernels::attention;
    table.attention_backward = kernels::attention_backward;
    table.router_topk = kernels::router_topk;
    table.router_topk_backward = kernels::router_topk_backward;
    table.route_rows = kernels::route_rows;
    table.gather_rows = kernels::gather_rows;
    table.combine_rows = kernels::combine_rows;
    table.combine_rows_backward = kernels::combine_rows_backward;
    table.embed = kernels::embed;
    table.embed_backward = kernels::embed_backward;
    table.add = kernels::add;
    table.round_bf16 = kernels::round_bf16;
    table.scatter_rows = kernels::scatter_rows;
    table.scatter_rows_int = kernels::scatter_rows_int;
    table.log_softmax = kernels::log_softmax;
    table.log_softmax_backward = kernels::log_softmax_backward;
    table.sample = kernels::sample;
    table.adamw = kernels::adamw;
    table.sum_squares = kernels::sum_squares;
    return table;
}

}  // namespace

const Operations& cuda_operations() {
    static const Operations table = cuda_table();
    return table;
}

}  // namespace quads
