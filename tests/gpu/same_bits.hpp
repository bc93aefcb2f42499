// Runs one piece of code over two tables of operations, the CPU's and the CUDA kernels, and compares every output bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "reference/codec.hpp"
#include "src/operations.hpp"
#include "tests/catch.hpp"

namespace quads::gpu_test {

// The arrays of one run. Outputs start as poison, a different one for each table, so that an element nobody wrote
// differs; a guard zone behind each output shows writes past its end.
class Arrays {
public:
    Arrays(const Operations& operations, unsigned char poison) : op(operations), poison_(poison) {}

    template <typename Element>
    Element* input(const std::vector<Element>& values) {
        void* memory = take(values.size() * sizeof(Element));
        op.to_device(memory, values.data(), values.size() * sizeof(Element));
        return static_cast<Element*>(memory);
    }

    template <typename Element>
    Element* output(std::size_t size) {
        const std::size_t bytes = size * sizeof(Element);
        const std::vector<unsigned char> fill(bytes + kGuard, poison_);
        void* memory = take(fill.size());
        op.to_device(memory, fill.data(), fill.size());
        outputs_.push_back({memory, bytes, sizeof(Element)});
        return static_cast<Element*>(memory);
    }

    // An output that the operation reads or only partly writes.
    template <typename Element>
    Element* inout(const std::vector<Element>& values) {
        Element* memory = output<Element>(values.size());
        op.to_device(memory, values.data(), values.size() * sizeof(Element));
        return memory;
    }

    Groups groups(const std::vector<int>& offsets) { return {input(offsets), static_cast<int>(offsets.size()) - 1}; }

    struct Result {
        std::vector<unsigned char> bytes;
        std::size_t element;
        bool guard_intact;
    };
    std::vector<Result> results() const {
        std::vector<Result> all;
        for (const Output& output : outputs_) {
            std::vector<unsigned char> bytes(output.bytes + kGuard);
            op.to_host(bytes.data(), output.memory, bytes.size());
            bool intact = true;
            for (std::size_t i = output.bytes; i < bytes.size(); ++i) intact = intact && bytes[i] == poison_;
            bytes.resize(output.bytes);
            all.push_back({bytes, output.element, intact});
        }
        return all;
    }

    const Operations& op;

private:
    static constexpr std::size_t kGuard = 512;
    struct Output {
        void* memory;
        std::size_t bytes, element;
    };

    void* take(std::size_t bytes) {
        memory_.push_back(std::make_unique<Buffer<unsigned char>>(op, bytes));
        return memory_.back()->data();
    }

    unsigned char poison_;
    std::vector<std::unique_ptr<Buffer<unsigned char>>> memory_;
    std::vector<Output> outputs_;
};

// CHECKs that run(arrays) gives the same bits with both tables. A difference shows output, count and first element.
template <typename Run>
void check_same_bits(const std::string& what, Run run) {
    Arrays expected_arrays(cpu_operations(), 0xA5), actual_arrays(cuda_operations(), 0x5A);
    run(expected_arrays);
    run(actual_arrays);
    const auto expected = expected_arrays.results(), actual = actual_arrays.results();
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::size_t size = expected[i].element;
        std::size_t differ = 0, first = 0;
        for (std::size_t j = 0; j < expected[i].bytes.size(); j += size) {
            if (std::memcmp(&expected[i].bytes[j], &actual[i].bytes[j], size) == 0) continue;
            if (differ++ == 0) first = j / size;
        }
        std::uint32_t expected_bits = 0, actual_bits = 0;
        if (differ > 0) std::memcpy(&expected_bits, &expected[i].bytes[first * size], size);
        if (differ > 0) std::memcpy(&actual_bits, &actual[i].bytes[first * size], size);
        INFO(what << ": output " << i << ", first difference at element " << first << ", expected bits 0x" << std::hex
                  << expected_bits << ", found 0x" << actual_bits);
        CHECK(differ == 0);
        CHECK(expected[i].guard_intact);
        CHECK(actual[i].guard_intact);
    }
}

// Random inputs. One generator a test, seeded, so that every failure can be repeated.
class Values {
public:
    explicit Values(unsigned seed) : engine_(seed) {}

    int integer(int lowest, int highest) {
        return lowest + static_cast<int>(engine_() % static_cast<unsigned>(highest - lowest + 1));
    }
    float uniform() { return static_cast<float>(engine_() >> 8) * 0x1p-24f; }

    // Around 1 in magnitude, times 2^-spread .. 2^spread, with zeros of both signs in between.
    std::vector<float> floats(std::size_t n, int spread = 2) {
        std::vector<float> values(n);
        for (float& value : values) {
            const int kind = integer(0, 31);
            value = std::ldexp(uniform() + uniform() - 1.0f, integer(-spread, spread));
            if (kind == 0) value = 0.0f;
            if (kind == 1) value = -0.0f;
        }
        return values;
    }
    std::vector<float> bf16(std::size_t n, int spread = 2) {
        std::vector<float> values = floats(n, spread);
        for (float& value : values) value = bf16_round(value);
        return values;
    }

    std::vector<std::uint8_t> bytes(std::size_t n, int lowest, int highest) {
        std::vector<std::uint8_t> values(n);
        for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(integer(lowest, highest));
        return values;
    }
    std::vector<int> integers(std::size_t n, int lowest, int highest) {
        std::vector<int> values(n);
        for (int& value : values) value = integer(lowest, highest);
        return values;
    }
    std::vector<int> permutation(int n) {
        std::vector<int> values(n);
        for (int i = 0; i < n; ++i) values[i] = i;
        for (int i = n - 1; i > 0; --i) std::swap(values[i], values[integer(0, i)]);
        return values;
    }
    // Offsets of E groups of M rows of random sizes, about a quarter of them empty.
    std::vector<int> offsets(int M, int E) {
        std::vector<int> values = integers(E + 1, 0, M);
        values[0] = 0;
        values[E] = M;
        std::sort(values.begin(), values.end());
        for (int e = 1; e < E; ++e) values[e] = integer(0, 3) == 0 ? values[e - 1] : values[e];
        return values;
    }

private:
    std::mt19937 engine_;
};

// "M 3 N 4": the sizes of a case, for the message of a failure.
template <typename... Parts>
std::string text(const Parts&... parts) {
    std::ostringstream stream;
    (stream << ... << parts);
    return stream.str();
}

}  // namespace quads::gpu_test
