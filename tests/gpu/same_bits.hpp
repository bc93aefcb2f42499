// Runs one piece of code over two tables of operations, the CPU's and the CUDA kernels, and compares every output bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "reference/codec.hpp"
#include "src/operations.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

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
        outputs_.push_back([=] {
            std::vector<unsigned char> raw(bytes + kGuard);
            op.to_host(raw.data(), memory, raw.size());
            Result result;
            std::vector<Element>& values = std::get<std::vector<Element>>(result.values);
            values.resize(size);
            if (bytes > 0) std::memcpy(values.data(), raw.data(), bytes);
            result.guard_intact = std::count(raw.begin() + bytes, raw.end(), poison_) == kGuard;
            return result;
        });
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
        std::tuple<std::vector<float>, std::vector<int>, std::vector<std::uint8_t>> values;  // one of them is used
        bool guard_intact;
    };
    std::vector<Result> results() const {
        std::vector<Result> all;
        for (const auto& download : outputs_) all.push_back(download());
        return all;
    }

    const Operations& op;

private:
    static constexpr int kGuard = 512;

    void* take(std::size_t bytes) {
        memory_.push_back(std::make_unique<Buffer<unsigned char>>(op, bytes));
        return memory_.back()->data();
    }

    unsigned char poison_;
    std::vector<std::unique_ptr<Buffer<unsigned char>>> memory_;
    std::vector<std::function<Result()>> outputs_;
};

// CHECKs that run(arrays) gives the same bits, and no NaN, with both tables.
template <typename Run>
void check_same_bits(const std::string& what, Run run) {
    Arrays expected_arrays(cpu_operations(), 0xA5), found_arrays(cuda_operations(), 0x5A);
    run(expected_arrays);
    run(found_arrays);
    const auto expected = expected_arrays.results(), found = found_arrays.results();
    for (std::size_t i = 0; i < expected.size(); ++i) {
        INFO(what << ", output " << i);
        CHECK(bit_difference(std::get<0>(found[i].values), std::get<0>(expected[i].values)) == "");
        CHECK(bit_difference(std::get<1>(found[i].values), std::get<1>(expected[i].values)) == "");
        CHECK(bit_difference(std::get<2>(found[i].values), std::get<2>(expected[i].values)) == "");
        CHECK(expected[i].guard_intact);
        CHECK(found[i].guard_intact);
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
