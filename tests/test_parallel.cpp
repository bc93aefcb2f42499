// Ranges split over threads: every index once, whoever calls.
#include "reference/parallel.hpp"

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using namespace quads;

namespace {

// How often parallel_for visits each of n indices.
std::vector<int> visits(int n, int grain) {
    std::vector<std::atomic<int>> count(n);
    parallel_for(n, grain, [&](int i) { ++count[i]; });
    return {count.begin(), count.end()};
}

}  // namespace

TEST_CASE("parallel_for visits every index once, for any number of threads", "[parallel]") {
    for (int wanted : {1, 2, 3, 8}) {
        set_threads(wanted);
        for (int n : {0, 1, 2, 7, 64, 1000}) CHECK(visits(n, 1) == std::vector<int>(n, 1));
        CHECK(visits(10, 100) == std::vector<int>(10, 1));
    }
    set_threads(0);
}

TEST_CASE("Callers side by side do not disturb each other, and an exception reaches its own caller", "[parallel]") {
    set_threads(6);  // two for each of three callers
    std::vector<std::atomic<int>> right(3), thrown(3);
    std::vector<std::thread> callers;
    for (int c = 0; c < 3; ++c) {
        callers.emplace_back([&, c] {
            const MachineShare share;
            for (int repeat = 0; repeat < 50; ++repeat) {
                right[c] += visits(100 + c, 1) == std::vector<int>(100 + c, 1);
                try {
                    parallel_for(100, 1, [&](int i) {
                        if (i == 7) throw std::runtime_error(std::to_string(c));
                    });
                } catch (const std::runtime_error& error) {
                    thrown[c] += error.what() == std::to_string(c);
                }
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    set_threads(0);
    for (int c = 0; c < 3; ++c) {
        CHECK(right[c] == 50);
        CHECK(thrown[c] == 50);
    }
}
