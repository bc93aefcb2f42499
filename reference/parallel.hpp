// Threads split independent outputs, never a sum, so no result depends on their number.
#pragma once

#include <functional>

namespace quads {

// Number of threads used from now on; 0 asks the machine.
void set_threads(int threads);
int threads();

// While it lives, its thread is one of several that work side by side, and the parallel calls of each get only their
// share of threads(). Work that is split at the top waits less than work that is split in every operation.
class MachineShare {
public:
    MachineShare();
    ~MachineShare();
    MachineShare(const MachineShare&) = delete;
    MachineShare& operator=(const MachineShare&) = delete;
};

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
