// What the verify tool knows of an operation: inputs to try, the reference, and how it usually goes wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace verify {

enum class Type { codes, byte, bf16, real, integer };  // codes: two E2M1 codes a byte
int size_of(Type type);

struct Array {
    const char* name;
    Type type;
    int rows, columns;  // of elements
    std::vector<std::uint8_t> bytes;

    Array(const char* name, Type type, int rows, int columns)
        : name(name), type(type), rows(rows), columns(columns), bytes(std::size_t(rows) * columns * size_of(type)) {}

    template <typename T>
    T* as() {
        return reinterpret_cast<T*>(bytes.data());
    }
    template <typename T>
    const T* as() const {
        return reinterpret_cast<const T*>(bytes.data());
    }
};
using Arrays = std::vector<Array>;

struct Case {
    std::string name;  // what is special about the input
    int size[3];       // M, K or M, N, K or T, D or T, E, S: see Operation::letters
    Arrays in, out;    // out: the reference's results
};

// A usual mistake, carried out: if a kernel's results equal these, the cause is found.
struct Flaw {
    const char* cause;
    std::function<void(const Case&, Arrays& out)> run;
};

struct Operation {
    const char* name;
    void (*call)(void* kernel, const int* size, void* const* arrays);  // arrays: in, then out
    const char* letters;                                               // of Case::size, e.g. "MNK"
    std::vector<Case> (*cases)();                                      // with the results of the reference
    std::vector<Flaw> flaws;
    // The numbers that one output element depends on, for the report.
    std::string (*describe)(const Case&, const Array& out, int row, int column);
};

const std::vector<Operation>& operations();

// Inputs: cases.cpp
std::vector<Case> quantize_cases();
std::vector<Case> dequantize_cases();
std::vector<Case> gemm_w4a4_cases();
std::vector<Case> gemm_w4a4_residual_cases();
std::vector<Case> gemm_bf16_cases();
std::vector<Case> rmsnorm_cases();
std::vector<Case> router_cases();

// Mistakes: flaws_nvfp4.cpp and flaws_model.cpp
std::vector<Flaw> quantize_flaws();
std::vector<Flaw> dequantize_flaws();
std::vector<Flaw> gemm_w4a4_flaws();
std::vector<Flaw> gemm_w4a4_residual_flaws();
std::vector<Flaw> gemm_bf16_flaws();
std::vector<Flaw> rmsnorm_flaws();
std::vector<Flaw> router_flaws();

}  // namespace verify
