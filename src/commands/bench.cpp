#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>

#include "reference/parallel.hpp"
#include "src/commands/commands.hpp"
#include "src/commands/run_options.hpp"
#include "src/train.hpp"

namespace quads {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Part {
    int calls = 0;
    double seconds = 0, flop = 0;
};
std::map<std::string, Part> parts;

// Operations performed by a GEMM, whose only integers are M, N and K; 0 for everything else, which is not counted.
template <typename... Arguments>
double gemm_flop(const std::string& name, const Arguments&... arguments) {
    if (name.rfind("gemm", 0) != 0) return 0;
    double product = 2;
    const auto multiply = [&](const auto& argument) {
        if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, int>) product *= argument;
    };
    (multiply(arguments), ...);
    return name == "gemm_w4a4_residual" ? 2 * product : product;
}

// An entry of the table that measures the one it replaces.
template <auto Entry, typename Function>
struct Measured;
template <auto Entry, typename... Arguments>
struct Measured<Entry, void (*)(Arguments...)> {
    static inline void (*original)(Arguments...);
    static inline std::string name;
    static void call(Arguments... arguments) {
        const double start = now();
        original(arguments...);
        Part& part = parts[name];
        part.seconds += now() - start;
        part.flop += gemm_flop(name, arguments...);
        ++part.calls;
    }
};

template <auto Entry>
void measure(Operations& table, const char* name) {
    using Wrapper = Measured<Entry, std::decay_t<decltype(table.*Entry)>>;
    Wrapper::original = table.*Entry;
    Wrapper::name = name;
    table.*Entry = Wrapper::call;
}

Operations measured(Operations table) {
#define QUADS_MEASURE(entry) measure<&Operations::entry>(table, #entry)
    QUADS_MEASURE(quantize_nvfp4);
    QUADS_MEASURE(dequantize_nvfp4);
    QUADS_MEASURE(quantize_nvfp4_residual);
    QUADS_MEASURE(count_code_flips);
    QUADS_MEASURE(gemm_w4a4);
    QUADS_MEASURE(gemm_w4a4_residual);
    QUADS_MEASURE(gemm_bf16);
    QUADS_MEASURE(gemm_bf16_backward_input);
    QUADS_MEASURE(gemm_bf16_backward_weight);
    QUADS_MEASURE(quantize_fp8);
    QUADS_MEASURE(gemm_fp8);
    QUADS_MEASURE(rmsnorm);
    QUADS_MEASURE(rmsnorm_backward);
    QUADS_MEASURE(swiglu);
    QUADS_MEASURE(swiglu_backward);
    QUADS_MEASURE(split_qkv);
    QUADS_MEASURE(attention);
    QUADS_MEASURE(attention_backward);
    QUADS_MEASURE(router_topk);
    QUADS_MEASURE(router_topk_backward);
    QUADS_MEASURE(route_rows);
    QUADS_MEASURE(gather_rows);
    QUADS_MEASURE(combine_rows);
    QUADS_MEASURE(combine_rows_backward);
    QUADS_MEASURE(embed);
    QUADS_MEASURE(embed_backward);
    QUADS_MEASURE(add);
    QUADS_MEASURE(round_bf16);
    QUADS_MEASURE(scatter_rows);
    QUADS_MEASURE(log_softmax);
    QUADS_MEASURE(log_softmax_backward);
    QUADS_MEASURE(sample);
    QUADS_MEASURE(adamw);
    QUADS_MEASURE(sum_squares);
#undef QUADS_MEASURE
    return table;
}

// FMA peak of all threads together: independent chains that live in registers.
double peak_gflops() {
    constexpr int kChains = 96, kRounds = 2000000;
    double best = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
        std::vector<float> sums(threads());
        const double start = now();
        parallel_for(threads(), 1, [&](int t) {
            std::array<float, kChains> chain{};
            for (int round = 0; round < kRounds; ++round) {
                for (float& c : chain) c = std::fma(c, 0.999f, 1.0f);
            }
            for (float c : chain) sums[t] += c;
        });
        const double flop = 2.0 * kChains * kRounds * threads();
        if (sums[0] > 0) best = std::max(best, flop / (now() - start) * 1e-9);
    }
    return best;
}

}  // namespace

int bench_command(const std::vector<std::string>& raw) {
    const Arguments arguments(raw, {"bench",
                                    "Seconds per training step on the CPU, by operation, and the GEMMs' GFLOP/s with "
                                    "their share of the machine's\n"
                                    "FMA peak, measured in the same run.",
                                    "",
                                    with_run_options({
                                        {"--mode", "NAME", "mode to measure (default quads)"},
                                        {"--steps", "N", "steps to measure after one warm-up step (default 10)"},
                                    })});
    RunConfig config = config_of(arguments);
    const int steps = static_cast<int>(arguments.integer("--steps", 1).value_or(10));
    config.evaluation.every = steps + 2;
    config.steps = steps + 2;
    const Operations table = measured(cpu_operations());
    double start = 0, seconds = 0;
    train_without_files(table, config, steps + 1, [&](const StepRecord& r) {
        if (r.step == 0) {
            parts.clear();
            start = now();
        }
        seconds = now() - start;
    });
    const double peak = peak_gflops();
    std::printf("mode %s, %d threads, %.3f s per step, FMA peak %.0f GFLOP/s\n", name_of(config.mode).c_str(),
                threads(), seconds / steps, peak);
    std::printf("operation                    calls/step   ms/step   share   GFLOP/s  of peak\n");
    std::multimap<double, std::string, std::greater<double>> order;
    double counted = 0;
    for (const auto& [name, part] : parts) {
        order.emplace(part.seconds, name);
        counted += part.seconds;
    }
    for (const auto& [part_seconds, name] : order) {
        const Part& part = parts[name];
        std::printf("%-27s  %10.1f  %8.2f  %5.1f%%", name.c_str(), static_cast<double>(part.calls) / steps,
                    part_seconds / steps * 1e3, part_seconds / seconds * 100);
        if (part.flop > 0) {
            const double rate = part.flop / part_seconds * 1e-9;
            std::printf("  %8.1f  %6.1f%%", rate, rate / peak * 100);
        }
        std::printf("\n");
    }
    std::printf("%-27s  %10s  %8.2f  %5.1f%%\n", "everything else", "", (seconds - counted) / steps * 1e3,
                (seconds - counted) / seconds * 100);
    return 0;
}

}  // namespace quads
