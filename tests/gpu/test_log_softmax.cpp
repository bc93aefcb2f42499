#include "tests/gpu/same_bits.hpp"
#include "tests/refusal.hpp"

using namespace quads;
using namespace quads::gpu_test;

TEST_CASE("cuda: log-softmax, its backward and sampling", "[gpu]") {
    Values values(1);
    for (int T : {1, 33, 700}) {
        for (int V : {1, 16, 33, 129}) {
            const std::size_t n = std::size_t(T) * V;
            const int N = 2 * T + 1;
            const std::vector<float> logits = values.floats(n, 5), weights = values.floats(n);
            const std::vector<int> row = values.integers(N, 0, T - 1);
            for (float temperature : {1.0f, 0.7f, 1e-3f}) {
                check_same_bits(text("log_softmax T ", T, " V ", V, " temperature ", temperature), [&](Arrays& a) {
                    float* logp = a.output<float>(n);
                    a.op.log_softmax(a.input(logits), temperature, T, V, logp, a.output<float>(T));
                    a.op.log_softmax_backward(logp, a.input(weights), temperature, T, V, a.output<float>(n));
                    a.op.sample(logp, a.input(row), N, V, 7, 11, 1000, 5, a.output<int>(N), a.output<float>(N));
                });
            }
        }
    }
}

TEST_CASE("cuda: a row without any probability is reported as on the CPU", "[gpu]") {
    std::vector<float> logp(3 * 4, -1.4f);
    std::fill(logp.begin() + 2 * 4, logp.end(), NAN);
    const std::vector<int> row{0, 1, 2};
    const auto message = [&](const Operations& op) {
        return refusal([&] {
            Arrays a(op, 0);
            a.op.sample(a.input(logp), a.input(row), 3, 4, 1, 2, 3, 4, a.output<int>(3), a.output<float>(3));
            a.results();
        });
    };
    CHECK(message(cpu_operations()).find("row 2") != std::string::npos);
    CHECK(message(cuda_operations()) == message(cpu_operations()));
}
