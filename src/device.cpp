#include "src/device.hpp"

#include <iostream>

namespace quads {

#ifndef QUADS_CUDA
const Operations& cuda_operations() {
    fail("This build has no CUDA. Install the CUDA toolkit and run `make clean quads`, or use --device cpu.");
}
#endif

const Operations& operations_for(const std::string& device) {
    if (device == "cpu") return cpu_operations();
    if (device == "reference") return reference_operations();
    if (device == "cuda") return cuda_operations();
    check(device == "auto", "Unknown device '", device, "', expected auto, cpu, cuda or reference.");
#ifdef QUADS_CUDA
    try {
        return cuda_operations();
    } catch (const Error& error) {
        std::cerr << error.what() << " Using the CPU.\n";
    }
#endif
    return cpu_operations();
}

}  // namespace quads
