#include "src/device.hpp"

#include <iostream>

namespace quads {

const Operations& operations_for(const std::string& device) {
    if (device == "cpu") return cpu_operations();
    if (device == "reference") return reference_operations();
    if (device == "cuda") return cuda_operations();
    check(device == "auto", "Unknown device '", device, "', expected auto, cpu, cuda or reference.");
    try {
        return cuda_operations();
    } catch (const Error& error) {
        std::cerr << error.what() << " Using the CPU.\n";
    }
    return cpu_operations();
}

}  // namespace quads
