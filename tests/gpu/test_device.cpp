#include "tests/gpu/same_bits.hpp"
#include "tests/refusal.hpp"

using namespace quads;
using namespace quads::gpu_test;

TEST_CASE("cuda: an impossible allocation is one sentence with a hint, and the device stays usable", "[gpu]") {
    const Operations& op = cuda_operations();
    const std::string message = refusal([&] { op.release(op.allocate(std::size_t{1} << 50)); });
    CHECK(message.find("out of memory") != std::string::npos);
    CHECK(message.find("Use fewer prompts") != std::string::npos);

    check_same_bits("after the error", [](Arrays& a) {
        a.op.round_bf16(a.input(std::vector<float>{1.0f, 1.001f}), 2, a.output<float>(2));
    });
}
