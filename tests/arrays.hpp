// Arrays and roundings that the tests of the operations share. Nothing here calls the code under test.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/parallel.hpp"

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Ints = std::vector<int>;

// Uniform in [-scale, scale] by the generator's raw words: the same numbers with every standard library.
inline Floats random_floats(std::size_t n, std::uint32_t seed, float scale = 1.0f) {
    std::mt19937 words(seed);
    Floats x(n);
    for (float& value : x) value = static_cast<float>((words() * 0x1p-31 - 1.0) * scale);
    return x;
}

// Nearest BF16 value, ties to even, by double arithmetic: right for 0 and for magnitudes from 2^-126 to 2^127.
inline float nearest_bf16(float x) {
    if (x == 0.0f) return x;
    int exponent;
    const double fraction = std::frexp(static_cast<double>(x), &exponent);
    return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8));
}

inline Floats nearest_bf16(Floats x) {
    for (float& value : x) value = nearest_bf16(value);
    return x;
}

inline Floats random_bf16(std::size_t n, std::uint32_t seed, float scale = 1.0f) {
    return nearest_bf16(random_floats(n, seed, scale));
}

inline Doubles to_double(const Floats& x) { return Doubles(x.begin(), x.end()); }

inline double largest_magnitude(const Floats& x) {
    double largest = 0.0;
    for (const float value : x) largest = std::fmax(largest, std::fabs(value));
    return largest;
}

// Largest |a[i] - b[i]|; NaN where either holds one, so that it passes no bound.
inline double largest_difference(const Floats& a, const Doubles& b) {
    double largest = a.size() == b.size() ? 0.0 : NAN;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
        const double difference = std::fabs(a[i] - b[i]);
        if (!(difference <= largest)) largest = difference;
        if (std::isnan(difference)) return difference;
    }
    return largest;
}

// Runs body with one thread, then with two, and restores the default: body(0), body(1).
template <typename Body>
void with_one_and_two_threads(const Body& body) {
    for (int run = 0; run < 2; ++run) {
        quads::set_threads(run + 1);
        body(run);
    }
    quads::set_threads(0);
}
