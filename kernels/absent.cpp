// Stands in for kernels/operations.cpp in a build without CUDA.
#include "src/operations.hpp"

namespace quads {

const Operations& cuda_operations() {
    fail("This build has no CUDA: it was made where no GPU or no nvcc was found. Run make again on a machine with both, or ",
         "make CUDA_ARCH=90a with the toolkit alone, or use --device cpu.");
}

}  // namespace quads
