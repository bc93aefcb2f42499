#include "reference/memory.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "reference/check.hpp"

namespace quads {

void* allocate_memory(std::size_t bytes) {
    constexpr std::size_t kLine = 64, kHugePage = std::size_t{1} << 21;
    const std::size_t unit = bytes < kHugePage ? kLine : kHugePage;
    void* memory = std::aligned_alloc(unit, (bytes + unit) / unit * unit);
    check(memory != nullptr, "Out of memory: ", bytes,
          " bytes could not be allocated. Use fewer prompts or a smaller model.");
#ifdef __linux__
    if (unit == kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

}  // namespace quads
