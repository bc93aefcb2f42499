#include "notebooks/labs/adapter.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

TEST_CASE("1. the router takes the largest logits in descending order", "[lab05]") {
    const Floats logits{0.5f, 2.0f, -1.0f, 1.0f};
    Floats probs(4), gates(2);
    Ints experts(2);
    lab::router_topk(logits.data(), 1, 4, 2, probs.data(), experts.data(), gates.data());
    REQUIRE_SAME_BITS(experts, (Ints{1, 3}));
    REQUIRE(std::fabs(gates[0] - 1 / (1 + std::exp(-1.0))) < 1e-6);  // softmax over 2 and 1
    REQUIRE(std::fabs(probs[0] + probs[1] + probs[2] + probs[3] - 1) < 1e-6);
}

TEST_CASE("2. equal logits: the lower expert wins", "[lab05]") {
    const Floats logits(5, 1.0f);
    Floats probs(5), gates(3);
    Ints experts(3);
    lab::router_topk(logits.data(), 1, 5, 3, probs.data(), experts.data(), gates.data());
    REQUIRE_SAME_BITS(experts, (Ints{0, 1, 2}));
}

TEST_CASE("3. the router has the bits of the reference", "[lab05]") {
    const int T = 33, E = 8, S = 2;
    const Floats logits = random_floats(T * E, 1, 4.0f);
    Floats probs(T * E), gates(T * S), probs_expected(T * E), gates_expected(T * S);
    Ints experts(T * S), experts_expected(T * S);
    lab::router_topk(logits.data(), T, E, S, probs.data(), experts.data(), gates.data());
    quads::reference::router_topk(logits.data(), nullptr, T, E, S, probs_expected.data(), experts_expected.data(),
                                  gates_expected.data());
    REQUIRE_SAME_BITS(experts, experts_expected);
    REQUIRE_SAME_BITS(probs, probs_expected);
    REQUIRE_SAME_BITS(gates, gates_expected);
}

TEST_CASE("4. rows are sorted by expert, in order of token and slot", "[lab05]") {
    const Ints experts{2, 0, 2, 3, 0, 2};  // 3 tokens, 2 slots; expert 1 gets nothing
    Ints offsets(5), source(6), place(6);
    lab::route_rows(experts.data(), 3, 4, 2, offsets.data(), source.data(), place.data());
    REQUIRE_SAME_BITS(offsets, (Ints{0, 2, 2, 5, 6}));
    REQUIRE_SAME_BITS(source, (Ints{0, 2, 0, 1, 2, 1}));
    REQUIRE_SAME_BITS(place, (Ints{2, 0, 3, 5, 1, 4}));
}

TEST_CASE("5. the rows of a group meet their matrix", "[lab05]") {
    const Floats x{1, 2, 3}, w{10, 100, 1000};  // three rows, three 1 x 1 matrices, the second without rows
    const Ints offsets{0, 1, 1, 3};
    Floats y(3, NAN);
    lab::grouped_gemm(x.data(), w.data(), offsets.data(), 3, 3, 1, 1, y.data());
    REQUIRE_SAME_BITS(y, (Floats{10, 2000, 3000}));
}

TEST_CASE("6. the grouped GEMM has the bits of the reference", "[lab05]") {
    const int M = 17, N = 9, K = 33, E = 4;
    const Ints offsets{0, 5, 5, 16, 17};
    const Floats x = random_bf16(M * K, 2), w = random_bf16(E * N * K, 3);
    Floats y(M * N, NAN), expected(M * N);
    lab::grouped_gemm(x.data(), w.data(), offsets.data(), E, M, N, K, y.data());
    quads::reference::gemm_bf16(x.data(), w.data(), nullptr, {offsets.data(), E}, M, N, K, expected.data());
    REQUIRE_SAME_BITS(y, expected);
}
