#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;

namespace {

void check_attention(Values& values, SequenceTree tree, int D, int H) {
    const int T = tree.rows();
    const std::size_t n = std::size_t(T) * D;
    const std::vector<float> qkv = values.floats(3 * n), d_o = values.floats(n);
    const std::vector<int> all_rows = values.permutation(T);
    const int some = (T + 1) / 2;  // a decode step asks for some of the rows, in any order
    const std::vector<int> some_rows(all_rows.begin(), all_rows.begin() + some);
    for (KvFormat format : {KvFormat::bf16, KvFormat::fp8}) {
        check_same_bits(text("attention T ", T, " D ", D, " H ", H, " format ", int(format)), [&](Arrays& a) {
            float *q = a.output<float>(n), *k = a.output<float>(n), *v = a.output<float>(n);
            a.op.split_qkv(a.input(qkv), a.input(all_rows), T, D, format, q, k, v);
            a.op.attention(q, k, v, a.input(all_rows), tree, T, D, H, a.output<float>(n));
            a.op.attention(q, k, v, a.input(some_rows), tree, some, D, H, a.output<float>(std::size_t(some) * D));
            a.op.attention_backward(a.input(d_o), q, k, v, tree, D, H, a.output<float>(3 * n));
            // Only the given rows of the cache change.
            float *kept_k = a.inout(qkv), *kept_v = a.inout(qkv);
            float* some_q = a.output<float>(std::size_t(some) * D);
            a.op.split_qkv(a.input(qkv), a.input(some_rows), some, D, format, some_q, kept_k, kept_v);
        });
    }
}

}  // namespace

TEST_CASE("cuda: attention over sequence trees", "[gpu]") {
    Values values(1);
    check_attention(values, {1, 1, 1, 0}, 1, 1);
    check_attention(values, {2, 0, 1, 3}, 6, 2);
    check_attention(values, {3, 16, 8, 6}, 64, 4);
    check_attention(values, {5, 22, 1, 0}, 64, 4);
    check_attention(values, {1, 3, 5, 2}, 33, 1);
    check_attention(values, {2, 1, 2, 40}, 34, 2);
    check_attention(values, {1, 70, 2, 33}, 132, 3);
}
