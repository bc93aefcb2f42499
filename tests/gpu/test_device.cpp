#include "tests/gpu/same_bits.hpp"

using namespace quads;
using namespace quads::gpu_test;

TEST_CASE("cuda: an impossible allocation is one sentence with a hint, and the device stays usable", "[gpu]") {
    const Operations& op = cuda_operations();
    try {
        op.release(op.allocate(std::size_t{1} << 50));
        FAIL("1 PiB was allocated");
    } catch (const Error& error) {
        CHECK(std::string(error.what()).find("out of memory") != std::string::npos);
        CHECK(std::string(error.what()).find("fewer prompts") != std::string::npos);
    }
    const Buffer<int> buffer(op, {1, 2, 3});
    CHECK(buffer.download() == std::vector<int>{1, 2, 3});
}
