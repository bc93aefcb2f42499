// quads_gpu_bench: the ladders beside cuBLAS and the card's limits. Every figure is the median of warmed graph replays;
// ratios come from the same run. Usage: quads_gpu_bench [--out FILE] [--only decode|prefill|moe|quantize]
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <string>

#include "kernels/bench/cublas.hpp"
#include "kernels/ladder/ladder.hpp"

namespace quads::bench {
namespace {

using namespace kernels;

struct Limits {
    double copy;    // bytes/s of a device-to-device copy, read plus written
    double tensor;  // FLOP/s of large BF16 cuBLAS GEMMs
};

struct Yardstick {
    double bf16 = -1.0, fp8 = -1.0;  // microseconds; negative: none
};

// The results, printed as they come and written as a JSON list.
class Results {
public:
    explicit Results(std::string environment) : environment_(std::move(environment)) {}

    void add(const std::string& op, const std::string& rung, const std::string& shape, double us, double share,
             const std::string& limit, Yardstick yardstick) {
        char line[512];
        std::snprintf(line, sizeof line,
                      "{\"op\": \"%s\", \"rung\": \"%s\", \"shape\": \"%s\", \"us\": %.3f, \"share_of_limit\": %.4f, "
                      "\"limit\": \"%s\", "
                      "\"vs_cublas_bf16\": %s, \"vs_cublas_fp8\": %s, ",
                      op.c_str(), rung.c_str(), shape.c_str(), us, share, limit.c_str(),
                      ratio(yardstick.bf16, us).c_str(), ratio(yardstick.fp8, us).c_str());
        lines_.push_back(line + environment_ + "}");
        std::printf("%-22s %-14s %-26s %9.2f us  %5.1f %% of %-16s bf16 %-6s fp8 %s\n", op.c_str(), rung.c_str(),
                    shape.c_str(), us, 100.0 * share, limit.c_str(), ratio(yardstick.bf16, us).c_str(),
                    ratio(yardstick.fp8, us).c_str());
        std::fflush(stdout);
    }

    void write(const std::string& file) const {
        std::ofstream out(file);
        for (std::size_t i = 0; i < lines_.size(); ++i) out << (i == 0 ? "[\n " : ",\n ") << lines_[i];
        out << "\n]\n";
        check(out.good(), "Cannot write ", file, ". Pass a path in an existing folder.");
    }

private:
    static std::string ratio(double yardstick, double us) {
        if (yardstick < 0.0) return "null";
        char text[32];
        std::snprintf(text, sizeof text, "%.3f", yardstick / us);
        return text;
    }

    std::string environment_;
    std::vector<std::string> lines_;
};

// Random packed tensor, `copies` of it one after the other.
struct Packed {
    Packed(std::int64_t rows, int K, int outers, int copies, unsigned seed)
        : code_bytes(rows * code_bytes_of(K)),
          scale_bytes(rows * blocks_of(K)),
          codes(code_bytes * copies),
          scales(scale_bytes * copies),
          outer(outers) {
        random_bytes(codes.data(), codes.size(), 0, 255, seed);
        random_bytes(scales.data(), scales.size(), 0x28, 0x7E, seed + 1);
        random_floats(outer.data(), outer.size(), seed + 2);
    }
    Nvfp4 view(int copy, OuterScale scale) const {
        return {codes.data() + copy * code_bytes, scales.data() + copy * scale_bytes, outer.data(), scale};
    }

    std::size_t code_bytes, scale_bytes;
    Memory<std::uint8_t> codes, scales;
    Memory<float> outer;
};

// Random weights in both orders; for timing, prepacked bytes need not belong to the same matrix.
struct Weights {
    Weights(int E, int N, int K, int copies, unsigned seed)
        : rows(static_cast<std::int64_t>(E) * N, K, E, copies, seed),
          code_bytes(ladder::prepacked_code_bytes(E, N, K)),
          scale_bytes(ladder::prepacked_scale_bytes(E, N, K)),
          codes(code_bytes * copies),
          scales(scale_bytes * copies) {
        random_bytes(codes.data(), codes.size(), 0, 255, seed + 3);
        random_bytes(scales.data(), scales.size(), 0x28, 0x7E, seed + 4);
    }
    Nvfp4 view(ladder::PackedOrder order, int copy) const {
        if (order == ladder::PackedOrder::rows) return rows.view(copy, OuterScale::group);
        return {codes.data() + copy * code_bytes, scales.data() + copy * scale_bytes, rows.outer.data(),
                OuterScale::group};
    }

    Packed rows;
    std::size_t code_bytes, scale_bytes;
    Memory<std::uint8_t> codes, scales;
};

struct Offsets {
    explicit Offsets(const std::vector<int>& host) : offsets(host.size()), E(static_cast<int>(host.size()) - 1) {
        CUDA_CHECK(cudaMemcpy(offsets.data(), host.data(), host.size() * sizeof(int), cudaMemcpyHostToDevice));
    }
    Groups groups() const { return {offsets.data(), E}; }

    Memory<int> offsets;
    int E;
};

// What is timed.
struct Kernel {
    std::string name;
    std::function<ladder::GemmW4a4> run;
    ladder::PackedOrder weights;
    int major;
};

Kernel rung(const char* name) {
    for (const ladder::GemmRung& candidate : ladder::kGemmRungs) {
        if (std::strcmp(candidate.name, name) == 0)
            return {name, candidate.run, candidate.weights, candidate.major};
    }
    fail("No rung is called ", name, ".");
}

// The decode rung as another operation: the sum over K in `splits` ranges.
Kernel decode_split(int splits) {
    const auto run = [splits](Nvfp4 x, const Nvfp4* residual, Nvfp4 w, Groups groups, int M, int N, int K, float* y) {
        ladder::gemm_w4a4_5_decode_split(x, residual, w, groups, M, N, K, splits, y);
    };
    return {"5_decode_split" + std::to_string(splits), run, ladder::PackedOrder::fragments, 0};
}

double gemm_bytes(double M, double N, double K, double matrices, double passes) {
    return matrices * N * K * 0.5625 + passes * M * K * 0.5625 + M * N * 4.0;
}

std::string shape_of(int M, int N, int K) {
    return "M " + std::to_string(M) + " N " + std::to_string(N) + " K " + std::to_string(K);
}

void bench_gemm(Results& results, const Limits& limits, const std::string& op, const Kernel& rung, int M, int N,
                int K, bool with_residual, Yardstick yardstick) {
    int major = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (rung.major != 0 && rung.major != major) {
        std::printf("%s is skipped: it is made for compute capability %d.0.\n", rung.name.c_str(), rung.major);
        return;
    }
    const int copies = copies_past_cache(0.5625 * N * K);
    const Packed x(M, K, M, 1, 10), residual(M, K, M, 1, 20);
    const Weights w(1, N, K, copies, 30);
    const Offsets offsets({0, M});
    const Memory<float> y(static_cast<std::size_t>(M) * N);
    const Nvfp4 residual_view = residual.view(0, OuterScale::row);
    const double flops = 2.0 * M * N * K;
    const int calls = flops > 1e11 ? 2 : std::max(copies, 20);
    const double us = microseconds(calls, [&](int i) {
        rung.run(x.view(0, OuterScale::row), with_residual ? &residual_view : nullptr, w.view(rung.weights, i % copies),
                 offsets.groups(), M, N, K, y.data());
    });
    const bool decode = M <= 64;
    const double share = decode ? gemm_bytes(M, N, K, 1, with_residual ? 2 : 1) / (us * 1e-6) / limits.copy
                                : (with_residual ? 2 : 1) * flops / (us * 1e-6) / limits.tensor;
    results.add(op, rung.name, shape_of(M, N, K), us, share, decode ? "copy bandwidth" : "BF16 tensor rate", yardstick);
}

void bench_decode(Results& results, const Limits& limits) {
    // Ranges of K: enough for sixteen warps a multiprocessor, fewer for many tokens, whose sums cost more to add up.
    const struct { int N, K, splits, splits_of_many; } shapes[] = {
        {4096, 4096, 8, 4}, {8192, 8192, 4, 4}, {14336, 4096, 4, 2}};
    for (const auto& shape : shapes) {
        const int N = shape.N, K = shape.K;
        for (int M : {1, 2, 4, 8, 16, 32, 64}) {
            const Kernel split = decode_split(M <= 16 ? shape.splits : shape.splits_of_many);
            const Yardstick yardstick{cublas_microseconds(Precision::bf16, M, N, K),
                                      cublas_microseconds(Precision::fp8, M, N, K)};
            const double bf16_share = (2.0 * N * K + 2.0 * M * (N + K)) / (yardstick.bf16 * 1e-6) / limits.copy;
            results.add("decode", "cublas_bf16", shape_of(M, N, K), yardstick.bf16, bf16_share, "copy bandwidth",
                        yardstick);
            for (const Kernel& kernel : {rung("5_decode"), split}) {
                bench_gemm(results, limits, "decode", kernel, M, N, K, false, yardstick);
                bench_gemm(results, limits, "decode with residual", kernel, M, N, K, true, yardstick);
            }
        }
    }
    const Yardstick yardstick{cublas_microseconds(Precision::bf16, 16, 4096, 4096),
                              cublas_microseconds(Precision::fp8, 16, 4096, 4096)};
    for (const char* name : {"1_naive", "2_shared", "3_dp4a", "4_mma", "6_prefill", "7_emulated"}) {
        bench_gemm(results, limits, "decode", rung(name), 16, 4096, 4096, false, yardstick);
    }
}

void bench_prefill(Results& results, const Limits& limits) {
    const int shapes[][3] = {{512, 4096, 4096}, {4096, 4096, 4096}, {4096, 8192, 8192}};
    for (const auto& shape : shapes) {
        const int M = shape[0], N = shape[1], K = shape[2];
        const Yardstick yardstick{cublas_microseconds(Precision::bf16, M, N, K),
                                  cublas_microseconds(Precision::fp8, M, N, K)};
        results.add("prefill", "cublas_bf16", shape_of(M, N, K), yardstick.bf16,
                    2.0 * M * N * K / (yardstick.bf16 * 1e-6) / limits.tensor, "BF16 tensor rate", yardstick);
        for (const char* name : {"6_prefill", "8_prefill_sm90a"}) {
            bench_gemm(results, limits, "prefill", rung(name), M, N, K, false, yardstick);
            bench_gemm(results, limits, "prefill with residual", rung(name), M, N, K, true, yardstick);
        }
        if (M != 4096 || N != 4096) continue;
        for (const char* name : {"2_shared", "3_dp4a", "4_mma"}) {
            bench_gemm(results, limits, "prefill", rung(name), M, N, K, false, yardstick);
        }
    }
}

// T tokens, each routed to 8 of 64 experts; every expert's rows meet its own (N, K) matrix.
void bench_moe(Results& results, const Limits& limits) {
    constexpr int E = 64, kSlots = 8, kCopies = 6;
    std::mt19937 words(1);
    const int shapes[][2] = {{2048, 768}, {768, 2048}};
    for (const auto& shape : shapes) {
        const int N = shape[0], K = shape[1];
        const Weights w(E, N, K, kCopies, 50);
        for (int T : {1, 2, 4, 8, 16, 32, 64}) {
            std::vector<int> rows(E, 0), offsets(1, 0);
            for (int token = 0; token < T; ++token) {
                std::vector<int> experts(E);
                for (int e = 0; e < E; ++e) experts[e] = e;
                for (int slot = 0; slot < kSlots; ++slot) {
                    std::swap(experts[slot], experts[slot + words() % (E - slot)]);
                    ++rows[experts[slot]];
                }
            }
            int active = 0;
            for (int count : rows) offsets.push_back(offsets.back() + count), active += count > 0;
            const int R = T * kSlots;
            const MoeTimes cublas = cublas_moe_microseconds(rows, N, K);
            const bool grouped_wins = cublas.grouped >= 0.0 && cublas.grouped < cublas.looped;
            const Yardstick yardstick{grouped_wins ? cublas.grouped : cublas.looped, -1.0};
            const std::string shape_text =
                "T " + std::to_string(T) + " E 64 top 8 N " + std::to_string(N) + " K " + std::to_string(K);
            results.add("moe", grouped_wins ? "cublas_bf16_grouped" : "cublas_bf16_looped", shape_text, yardstick.bf16,
                        (2.0 * active * N * K + 2.0 * R * (N + K)) / (yardstick.bf16 * 1e-6) / limits.copy,
                        "copy bandwidth", yardstick);
            const Packed x(R, K, R, 1, 60), residual(R, K, R, 1, 70);
            const Offsets device_offsets(offsets);
            const Memory<float> y(static_cast<std::size_t>(R) * N);
            const Nvfp4 residual_view = residual.view(0, OuterScale::row);
            for (const Kernel& kernel : {rung("5_decode"), decode_split(T <= 4 ? 4 : 2)}) {
                for (bool with_residual : {false, true}) {
                    const double us = microseconds(24, [&](int i) {
                        kernel.run(x.view(0, OuterScale::row), with_residual ? &residual_view : nullptr,
                                   w.view(kernel.weights, i % kCopies), device_offsets.groups(), R, N, K, y.data());
                    });
                    results.add(with_residual ? "moe with residual" : "moe", kernel.name, shape_text, us,
                                gemm_bytes(R, N, K, active, with_residual ? 2 : 1) / (us * 1e-6) / limits.copy,
                                "copy bandwidth", yardstick);
                }
            }
        }
    }
}

void bench_quantize(Results& results, const Limits& limits) {
    const int shapes[][2] = {{8192, 4096}, {16384, 2048}, {32, 4096}};
    for (const auto& shape : shapes) {
        const int M = shape[0], K = shape[1];
        const std::size_t elements = static_cast<std::size_t>(M) * K;
        const int copies = std::min(copies_past_cache(4.0 * elements), 64);
        const Memory<float> x(elements * copies);
        random_floats(x.data(), x.size(), 80);
        const Packed main(M, K, M, copies, 90), residual(M, K, M, copies, 91);
        const Offsets offsets({0, M});
        const std::string shape_text = "M " + std::to_string(M) + " K " + std::to_string(K);
        const double one_pass = 0.5625 * elements, bytes = 4.0 * elements + one_pass + 4.0 * M;
        for (const ladder::QuantizeRung& rung : ladder::kQuantizeRungs) {
            const double us = microseconds(std::max(copies, 4), [&](int i) {
                const int copy = i % copies;
                rung.run(x.data() + copy * elements, offsets.groups(), M, K, main.view(copy, OuterScale::row));
            });
            results.add("quantize", rung.name, shape_text, us, bytes / (us * 1e-6) / limits.copy, "copy bandwidth", {});
        }
        for (float ratio : {0.5f, 1.0f}) {
            const double us = microseconds(std::max(copies, 4), [&](int i) {
                const int copy = i % copies;
                ladder::quantize_nvfp4_4_residual(x.data() + copy * elements, M, K, ratio,
                                                  main.view(copy, OuterScale::row),
                                                  residual.view(copy, OuterScale::row));
            });
            results.add(ratio < 1.0f ? "quantize, residual 50 %" : "quantize, residual 100 %", "4_residual", shape_text,
                        us, (bytes + one_pass) / (us * 1e-6) / limits.copy, "copy bandwidth", {});
        }
    }
}

// As nvidia-smi names it; the CUDA version that the driver supports where there is no nvidia-smi.
std::string driver_version() {
    char text[64] = "";
    if (std::FILE* pipe = popen("nvidia-smi --query-gpu=driver_version --format=csv,noheader 2> /dev/null", "r")) {
        if (std::fgets(text, sizeof text, pipe) == nullptr) text[0] = 0;
        pclose(pipe);
    }
    text[std::strcspn(text, "\n")] = 0;
    if (text[0] != 0) return text;
    int driver = 0;
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    return "CUDA " + std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10);
}

std::string environment(const std::string& command) {
    cudaDeviceProp properties{};
    int runtime = 0;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    const std::time_t now = std::time(nullptr);
    char date[16];
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
    std::ostringstream text;
    text << "\"card\": \"" << properties.name << "\", \"driver\": \"" << driver_version() << "\", \"toolkit\": \""
         << runtime / 1000 << "." << runtime % 1000 / 10 << "\", \"date\": \"" << date << "\", \"command\": \""
         << command << "\"";
    return text.str();
}

}  // namespace
}  // namespace quads::bench

int main(int argc, char** argv) {
    using namespace quads;
    using namespace quads::bench;
    try {
        std::string out, only, command = "quads_gpu_bench";
        for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
        for (int i = 1; i < argc; i += 2) {
            check(i + 1 < argc, "Option ", argv[i], " needs a value.");
            if (std::strcmp(argv[i], "--out") == 0) {
                out = argv[i + 1];
            } else {
                check(std::strcmp(argv[i], "--only") == 0, "Unknown option ", argv[i],
                      ". Known: --out FILE, --only PART.");
                only = argv[i + 1];
            }
        }
        kernels::stream();    // chooses the device, or says why there is none
        double tensor = 0.0;  // the better of two sizes: the larger runs into the power limit on some cards
        for (double n : {4096.0, 8192.0}) {
            const int side = static_cast<int>(n);
            tensor =
                std::max(tensor, 2.0 * n * n * n / (cublas_microseconds(Precision::bf16, side, side, side) * 1e-6));
        }
        const Limits limits{copy_bandwidth(), tensor};
        std::printf("copy %.2f TB/s, cuBLAS BF16 %.0f TFLOP/s\n", limits.copy * 1e-12, limits.tensor * 1e-12);
        char measured[96];
        std::snprintf(measured, sizeof measured, ", \"copy_bytes_per_s\": %.4g, \"bf16_flop_per_s\": %.4g", limits.copy,
                      limits.tensor);
        Results results(environment(command) + measured);
        const auto wanted = [&](const char* part) { return only.empty() || only == part; };
        if (wanted("quantize")) bench_quantize(results, limits);
        if (wanted("decode")) bench_decode(results, limits);
        if (wanted("moe")) bench_moe(results, limits);
        if (wanted("prefill")) bench_prefill(results, limits);
        if (!out.empty()) results.write(out);
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
