#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/exact_math.hpp"
#include "tests/catch.hpp"

using namespace quads;

namespace {

const float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

// One function under test, its value in double (whose own error is far below a unit of FP32), the largest error allowed
// in units in the last place of the result, and the smallest input the bound holds for.
struct Function {
    const char* name;
    float (*exact)(float);
    double (*oracle)(double);
    double bound;
    float from;
};

double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double silu(double x) { return std::isinf(x) && x < 0 ? 0.0 : x * sigmoid(x); }
double rsqrt(double x) { return 1 / std::sqrt(x); }

const Function kFunctions[] = {
    {"exp", exact_exp, std::exp, 0.94, -kInfinity},        {"log", exact_log, std::log, 0.84, -kInfinity},
    {"sigmoid", exact_sigmoid, sigmoid, 2.41, -kInfinity}, {"silu", exact_silu, silu, 3.32, -87.0f},
    {"rsqrt", exact_rsqrt, rsqrt, 1.5, -kInfinity},
};

// Distance in units in the last place of the value; 0 for equal specials, infinite for different ones.
double ulp_error(float found, double value) {
    const float rounded = static_cast<float>(value);
    if (std::isnan(value) || std::isnan(found)) return std::isnan(value) && std::isnan(found) ? 0.0 : kInfinity;
    if (std::isinf(rounded) || std::isinf(found)) return rounded == found ? 0.0 : kInfinity;
    const int exponent = std::max(std::ilogb(value), -126);
    return std::fabs(found - value) / std::ldexp(1.0, value == 0.0 ? -149 : exponent - 23);
}

// Largest error over the floats 0, stride, 2 * stride ... as bit patterns.
void require_bound(const Function& f, std::uint64_t stride) {
    double worst = 0.0;
    float at = 0.0f;
    for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += stride) {
        const float x = float_from_bits(static_cast<std::uint32_t>(bits));
        if (x < f.from) continue;
        const double error = ulp_error(f.exact(x), f.oracle(x));
        if (error > worst) {
            worst = error;
            at = x;
        }
    }
    INFO(f.name << " is worst at " << at << ": " << worst << " units in the last place");
    REQUIRE(worst <= f.bound);
}

}  // namespace

TEST_CASE("exact_math: errors in units in the last place, every 4999th float", "[exact_math]") {
    for (const Function& f : kFunctions) require_bound(f, 4999);
}

TEST_CASE("exact_math: errors in units in the last place, all floats", "[exact_math][.slow]") {
    for (const Function& f : kFunctions) require_bound(f, 1);
}

TEST_CASE("exact_math: exp at its edges", "[exact_math]") {
    REQUIRE(exact_exp(0.0f) == 1.0f);
    REQUIRE(exact_exp(-0.0f) == 1.0f);
    REQUIRE(float_bits(exact_exp(-kInfinity)) == 0u);
    REQUIRE(exact_exp(kInfinity) == kInfinity);
    REQUIRE(std::isnan(exact_exp(kNan)));
    REQUIRE(std::isnan(exact_exp(-kNan)));
    REQUIRE(exact_exp(0x1.62e42ep+6f) == static_cast<float>(std::exp(double{0x1.62e42ep+6f})));  // the last finite one
    REQUIRE(exact_exp(0x1.62e430p+6f) == kInfinity);
    REQUIRE(exact_exp(-0x1.9fe368p+6f) == 0x1p-149f);  // the smallest positive result
    REQUIRE(float_bits(exact_exp(-0x1.9fe36ap+6f)) == 0u);
}

TEST_CASE("exact_math: log at its edges", "[exact_math]") {
    REQUIRE(float_bits(exact_log(1.0f)) == 0u);
    REQUIRE(exact_log(0.0f) == -kInfinity);
    REQUIRE(exact_log(-0.0f) == -kInfinity);
    REQUIRE(exact_log(kInfinity) == kInfinity);
    REQUIRE(std::isnan(exact_log(-1.0f)));
    REQUIRE(std::isnan(exact_log(-kInfinity)));
    REQUIRE(std::isnan(exact_log(kNan)));
    REQUIRE(exact_log(0x1p-149f) == static_cast<float>(std::log(0x1p-149)));
}

TEST_CASE("exact_math: sigmoid, silu and rsqrt at their edges", "[exact_math]") {
    REQUIRE(exact_sigmoid(0.0f) == 0.5f);
    REQUIRE(exact_sigmoid(kInfinity) == 1.0f);
    REQUIRE(float_bits(exact_sigmoid(-kInfinity)) == 0u);
    REQUIRE(std::isnan(exact_sigmoid(kNan)));
    REQUIRE(exact_silu(kInfinity) == kInfinity);
    REQUIRE(exact_silu(-kInfinity) == 0.0f);
    REQUIRE(std::isnan(exact_silu(kNan)));
    REQUIRE(exact_rsqrt(0.25f) == 2.0f);
    REQUIRE(exact_rsqrt(0.0f) == kInfinity);
    REQUIRE(exact_rsqrt(kInfinity) == 0.0f);
    REQUIRE(std::isnan(exact_rsqrt(-1.0f)));
    // Below silu's bound e^x loses bits as a subnormal; what remains is small in absolute terms.
    for (float x = -87.0f; x > -120.0f; x -= 0.125f) REQUIRE(std::fabs(exact_silu(x) - silu(x)) <= 0x1p-142);
}

// A compiler may vectorise a loop and not a single call; both must give the same bits.
TEST_CASE("exact_math: a vectorised loop gives the bits of single calls", "[exact_math]") {
    std::vector<float> x, y;
    for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 49999) {
        const float value = float_from_bits(static_cast<std::uint32_t>(bits));
        if (!std::isnan(value)) x.push_back(value);
    }
    y.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = exact_silu(x[i]) + exact_log(exact_exp(x[i]));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        volatile float one = x[i];
        const float again = exact_silu(one) + exact_log(exact_exp(one));
        wrong += std::isnan(again) ? !std::isnan(y[i]) : float_bits(again) != float_bits(y[i]);
    }
    REQUIRE(wrong == 0);
}
