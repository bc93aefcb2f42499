// Threads split independent outputs, never a sum, so no result depends on their number.
#pragma once

#include <functional>

namespace quads {

// Number of threads used from now on; 0 asks the machine.
void set_threads(int threads);
int threads();

// Calls body(begin, end) on disjoint ranges that cover 0 .. n-1, in parallel. `grain` is the smallest range worth a
// thread. An exception thrown by a body is rethrown here. Calls from inside a body run in that thread.
void parallel_ranges(int n, int grain, const std::function<void(int, int)>& body);

// The same with one call per index.
template <typename Body>
void parallel_for(int n, int grain, const Body& body) {
    parallel_ranges(n, grain, [&](int begin, int end) {
        for (int i = begin; i < end; ++i) body(i);
    });
}

}  // namespace quads
