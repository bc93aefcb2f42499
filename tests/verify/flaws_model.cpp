// Usual mistakes with the BF16 GEMM, RMSNorm and the router, each carried out from the formulas.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/exact_math.hpp"
#include "reference/oracles.hpp"
#include "tests/verify/operations.hpp"

namespace verify {
namespace {

using quads::bf16_from_bits;
using quads::bf16_round;

enum class Gemm { descending, wide, lanes, toward_zero, rounded_output, rounded_sum, transposed_w, transposed_y };

float sum_toward_zero(float a, float b) {
    const double exact = double{a} + b;
    const float nearest = static_cast<float>(exact);
    return std::fabs(nearest) > std::fabs(exact) ? std::nextafter(nearest, 0.0f) : nearest;
}

void gemm_bf16(const Case& c, Arrays& out, Gemm flaw) {
    const auto [M, N, K] = c.size;
    const std::uint16_t *x = c.in[0].as<std::uint16_t>(), *w = c.in[1].as<std::uint16_t>();
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float sum[8] = {};
            double wide = 0;
            for (int i = 0; i < K; ++i) {
                const int k = flaw == Gemm::descending ? K - 1 - i : i;
                const float a = bf16_from_bits(x[m * K + k]);
                const float term = a * bf16_from_bits(w[flaw == Gemm::transposed_w ? k * N + n : n * K + k]);
                float& lane = sum[flaw == Gemm::lanes ? k % 8 : 0];
                lane = flaw == Gemm::toward_zero ? sum_toward_zero(lane, term) : lane + term;
                if (flaw == Gemm::rounded_sum) lane = bf16_round(lane);
                wide += term;
            }
            float y = flaw == Gemm::lanes ? std::accumulate(sum, sum + 8, 0.0f) : sum[0];
            if (flaw == Gemm::wide) y = static_cast<float>(wide);
            if (flaw == Gemm::rounded_output) y = bf16_round(y);
            out[0].as<float>()[flaw == Gemm::transposed_y ? n * M + m : m * N + n] = y;
        }
    }
}

// Not a mistake by itself: what the hardware does where the contract asks for one rounding per step.
void gemm_bf16_hopper(const Case& c, Arrays& out) {
    const auto [M, N, K] = c.size;
    std::vector<float> x(M * K), w(N * K);
    std::transform(c.in[0].as<std::uint16_t>(), c.in[0].as<std::uint16_t>() + M * K, x.begin(), bf16_from_bits);
    std::transform(c.in[1].as<std::uint16_t>(), c.in[1].as<std::uint16_t>() + N * K, w.begin(), bf16_from_bits);
    const int offsets[] = {0, M};
    quads::reference::gemm_bf16_tensor_core(x.data(), w.data(), nullptr, {offsets, 1}, M, N, K, out[0].as<float>());
}

enum class Norm {
    no_epsilon,
    epsilon_outside,
    divide,
    gain_first,
    twice_rounded,
    unrounded,
    lanes,
    wide,
    centred,
    sum
};

void rmsnorm(const Case& c, Arrays& out, Norm flaw) {
    const int T = c.size[0], D = c.size[1];
    const float* g = c.in[1].as<float>();
    for (int t = 0; t < T; ++t) {
        const float* x = c.in[0].as<float>() + t * D;
        const float mean = flaw == Norm::centred ? std::accumulate(x, x + D, 0.0f) / D : 0.0f;
        float sum[8] = {};
        double wide = 0;
        for (int d = 0; d < D; ++d) {
            const float centred = x[d] - mean;
            float& lane = sum[flaw == Norm::lanes ? d % 8 : 0];
            lane = std::fma(centred, centred, lane);
            wide += double{centred} * centred;
        }
        float squares = flaw == Norm::lanes ? std::accumulate(sum, sum + 8, 0.0f) : sum[0];
        if (flaw == Norm::wide) squares = static_cast<float>(wide);
        const float average = flaw == Norm::sum ? squares : squares / D;
        float root = std::sqrt(average + (flaw == Norm::no_epsilon || flaw == Norm::epsilon_outside ? 0.0f : 1e-6f));
        if (flaw == Norm::epsilon_outside) root += 1e-6f;
        const float rstd = 1.0f / root;
        out[1].as<float>()[t] = rstd;
        for (int d = 0; d < D; ++d) {
            const float centred = x[d] - mean;
            float h = centred * rstd * g[d];
            if (flaw == Norm::divide) h = centred / root * g[d];
            if (flaw == Norm::gain_first) h = centred * g[d] * rstd;
            if (flaw == Norm::twice_rounded) h = bf16_round(centred * rstd) * g[d];
            out[0].as<float>()[t * D + d] = flaw == Norm::unrounded ? h : bf16_round(h);
        }
    }
}

enum class Router { ties_high, not_normalised, library_exp, by_index, chosen_softmax };

void router(const Case& c, Arrays& out, Router flaw) {
    const auto [T, E, S] = c.size;
    for (int t = 0; t < T; ++t) {
        const float* logits = c.in[0].as<float>() + t * E;
        float *probs = out[0].as<float>() + t * E, *gates = out[2].as<float>() + t * S;
        int* experts = out[1].as<int>() + t * S;
        const float largest = *std::max_element(logits, logits + E);
        const auto power = [&](float z) {
            return flaw == Router::library_exp ? std::exp(z - largest) : quads::exact_exp(z - largest);
        };
        float sum = 0;
        for (int e = 0; e < E; ++e) sum += probs[e] = power(logits[e]);
        for (int e = 0; e < E; ++e) probs[e] /= sum;
        std::vector<int> order(E);
        std::iota(order.begin(), order.end(), 0);
        if (flaw == Router::ties_high) std::reverse(order.begin(), order.end());
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
        std::copy_n(order.begin(), S, experts);
        if (flaw == Router::by_index) std::sort(experts, experts + S);
        const auto weight = [&](int s) {
            return flaw == Router::chosen_softmax ? power(logits[experts[s]]) : probs[experts[s]];
        };
        float chosen = 0;
        for (int s = 0; s < S; ++s) chosen += weight(s);
        for (int s = 0; s < S; ++s) gates[s] = flaw == Router::not_normalised ? weight(s) : weight(s) / chosen;
    }
}

template <typename Kind, typename Causes>
std::vector<Flaw> flaws_of(void (*run)(const Case&, Arrays&, Kind), const Causes& causes) {
    std::vector<Flaw> flaws;
    for (const auto& [kind, cause] : causes) {
        flaws.push_back({cause, [run, kind = kind](const Case& c, Arrays& out) { run(c, out, kind); }});
    }
    return flaws;
}

}  // namespace

std::vector<Flaw> gemm_bf16_flaws() {
    const std::pair<Gemm, const char*> causes[] = {
        {Gemm::descending, "order of the sum: k must ascend, it descends"},
        {Gemm::wide, "more precise than the contract: the sum is FP32, rounded at every k, not double"},
        {Gemm::lanes, "eight partial sums: vectorise across outputs instead; the sum over k is one ascending chain"},
        {Gemm::toward_zero, "sums rounded toward zero, as tensor cores do: use FP32 fma"},
        {Gemm::rounded_output, "output rounded to BF16: y is FP32"},
        {Gemm::rounded_sum, "BF16 accumulation: the running sum is FP32"},
        {Gemm::transposed_w, "transposed weights: w is (N, K), so y[m,n] = sum_k x[m,k] w[n,k]"},
        {Gemm::transposed_y, "transposed output: y is (M, N), row-major"},
    };
    std::vector<Flaw> flaws = flaws_of(gemm_bf16, causes);
    flaws.push_back(
        {"tensor cores: these are the bits of Hopper's mma.m16n8k16 (quads_gemm_bf16_tensor_core models them); "
         "the contract asks for FP32 additions",
         gemm_bf16_hopper});
    return flaws;
}

std::vector<Flaw> rmsnorm_flaws() {
    const std::pair<Norm, const char*> causes[] = {
        {Norm::no_epsilon, "missing epsilon: rstd = 1 / sqrt(mean + 1e-6)"},
        {Norm::epsilon_outside, "epsilon outside the root: rstd = 1 / sqrt(mean + 1e-6)"},
        {Norm::divide, "division by the root: h = (x * rstd) * g with rstd = 1 / sqrt(.) rounded once"},
        {Norm::gain_first, "order of the factors: h = (x * rstd) * g, not (x * g) * rstd"},
        {Norm::twice_rounded, "rounded to BF16 before the gain: round once, after it"},
        {Norm::unrounded, "output not rounded to BF16"},
        {Norm::lanes, "eight partial sums: the sum of squares is one ascending chain of fma"},
        {Norm::wide, "more precise than the contract: the sum of squares is FP32, not double"},
        {Norm::centred, "mean subtracted, as LayerNorm does: RMSNorm does not"},
        {Norm::sum, "sum instead of mean: divide the sum of squares by D"},
    };
    return flaws_of(rmsnorm, causes);
}

std::vector<Flaw> router_flaws() {
    const std::pair<Router, const char*> causes[] = {
        {Router::ties_high, "equal logits: the lower expert index wins"},
        {Router::not_normalised, "gates not normalised: divide by the sum of the chosen probabilities"},
        {Router::library_exp,
         "exp of the library: its last bit differs between machines, use exact_exp of reference/exact_math.hpp"},
        {Router::by_index, "order of the slots: descending logits, not ascending expert index"},
        {Router::chosen_softmax, "softmax over the chosen only: gates are chosen probabilities over their sum"},
    };
    return flaws_of(router, causes);
}

}  // namespace verify
