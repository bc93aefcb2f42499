#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;

TEST_CASE("cuda: embeddings and the residual stream", "[gpu]") {
    Values values(1);
    for (int T : {1, 33, 1000}) {
        for (int D : {1, 31, 64}) {
            const std::size_t n = std::size_t(T) * D;
            const int V = 16, positions = 23;
            const std::vector<float> token_table = values.floats(V * D), position_table = values.floats(positions * D);
            const std::vector<float> x = values.floats(n), y = values.floats(n);
            const std::vector<int> tokens = values.integers(T, 0, V - 2), places = values.integers(T, 0, positions - 1);
            const std::vector<int> rows = values.permutation(T);
            check_same_bits(text("embedding T ", T, " D ", D), [&](Arrays& a) {
                const float *x_in = a.input(x), *y_in = a.input(y);
                const int *tokens_in = a.input(tokens), *places_in = a.input(places), *rows_in = a.input(rows);
                for (bool bf16 : {false, true}) {
                    a.op.embed(tokens_in, places_in, a.input(token_table), a.input(position_table), T, D, bf16,
                               a.output<float>(n));
                    a.op.add(x_in, y_in, static_cast<int>(n), bf16, a.output<float>(n));
                    float* in_place = a.inout(x);
                    a.op.add(in_place, y_in, static_cast<int>(n), bf16, in_place);
                }
                a.op.embed_backward(x_in, tokens_in, T, D, V, a.output<float>(V * D));
                a.op.embed_backward(x_in, places_in, T, D, positions, a.output<float>(positions * D));
                a.op.round_bf16(x_in, static_cast<int>(n), a.output<float>(n));
                a.op.scatter_rows(x_in, rows_in, T, D, a.output<float>(n));
                a.op.scatter_rows_int(tokens_in, rows_in, T, 1, a.output<int>(T));
            });
        }
    }
}
