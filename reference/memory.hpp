// Memory for large arrays and for scratch that is kept from call to call.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace quads {

// Aligned to a cache line; freed by std::free. From 2 MB on it lies on huge pages where the system has them: streaming
// through arrays is most of a training step, and with small pages half of that goes into address translation. Throws
// Error where there is none.
void* allocate_memory(std::size_t bytes);

// Scratch of this thread, one array for each Use (any type): fresh pages would cost more than what is written to them.
// The content is whatever the last call left; a later call with a larger size moves it.
template <typename Use>
float* scratch(std::size_t floats) {
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };
    thread_local std::unique_ptr<float, Free> memory;
    thread_local std::size_t size = 0;
    if (size < floats) {
        memory.reset(static_cast<float*>(allocate_memory(floats * sizeof(float))));
        size = floats;
    }
    return memory.get();
}

}  // namespace quads
