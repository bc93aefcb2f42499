// Stands in for kernels/operations.cpp in a build without CUDA.
#include "src/operations.hpp"

namespace quads {

const Operations& cuda_operations() {
    fail("This build has no CUDA: no GPU or no nvcc was found. Run `make quads CUDA_ARCH=90a`, or use --device cpu.");
}

}  // namespace quads
