// Checks a kernel against the reference, bit for bit, and guesses what is wrong with it.
//   verify_kernel OP FILE.so     exit 0: exact; 1: not; 2: could not be tried
// The kernel runs in a child process, so that a crash or a hang of it ends in a sentence.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "reference/codec.hpp"
#include "tests/verify/operations.hpp"

using namespace verify;

namespace {

constexpr int kGuard = 256;              // bytes before and after each array, watched
constexpr unsigned char kPoison = 0xFF;  // NaN as float, BF16 and E4M3; -6 as E2M1; -1 as integer
constexpr int kShownCases = 3, kShownElements = 3;

// Where arrays live: on the host, or where a .cu file's companion (device.cu) puts them.
struct Memory {
    void* (*allocate)(std::size_t bytes) = [](std::size_t bytes) {
        return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    };
    void (*release)(void*) = std::free;
    void (*copy)(void* destination, const void* source, std::size_t bytes) = [](void* d, const void* s, std::size_t n) {
        std::memcpy(d, s, n);
    };
    const char* (*finish)() = [] { return ""; };  // waits for the kernel; its error or ""
};

struct Kernel {
    void* symbol;
    Memory memory;
};

template <typename Function>
void replace_by_symbol(void* library, const char* name, Function& function) {
    if (void* symbol = dlsym(library, name)) function = reinterpret_cast<Function>(symbol);
}

std::string shape_text(const Operation& operation, const Case& c) {
    std::ostringstream text;
    text << "'" << c.name << "'";
    for (int i = 0; operation.letters[i] != 0; ++i) text << " " << operation.letters[i] << "=" << c.size[i];
    return text.str();
}

// Runs the kernel on poisoned outputs and returns them; `problem` tells of bytes written where none belong.
Arrays run_kernel(const Operation& operation, const Kernel& kernel, const Case& c, std::string& problem) {
    std::vector<const Array*> arrays;
    for (const Array& array : c.in) arrays.push_back(&array);
    for (const Array& array : c.out) arrays.push_back(&array);
    std::vector<std::vector<std::uint8_t>> images;
    std::vector<void*> memory, pointers;
    for (const Array* array : arrays) {
        std::vector<std::uint8_t> image(array->bytes.size() + 2 * kGuard, kPoison);
        if (images.size() < c.in.size()) std::copy(array->bytes.begin(), array->bytes.end(), image.begin() + kGuard);
        memory.push_back(kernel.memory.allocate(image.size()));
        kernel.memory.copy(memory.back(), image.data(), image.size());
        pointers.push_back(static_cast<char*>(memory.back()) + kGuard);
        images.push_back(std::move(image));
    }
    operation.call(kernel.symbol, c.size, pointers.data());
    problem = kernel.memory.finish();
    Arrays out = c.out;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        std::vector<std::uint8_t> after(images[i].size());
        kernel.memory.copy(after.data(), memory[i], after.size());
        kernel.memory.release(memory[i]);
        const bool output = i >= c.in.size();
        if (output) std::copy(after.begin() + kGuard, after.end() - kGuard, out[i - c.in.size()].bytes.begin());
        if (output) std::fill(after.begin() + kGuard, after.end() - kGuard, kPoison);
        if (problem.empty() && after != images[i]) {
            problem = std::string(output ? "bytes outside the output " : "the input ") + arrays[i]->name +
                      " or its surroundings were written";
        }
    }
    return out;
}

std::uint32_t bits_of(const Array& array, int i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, array.bytes.data() + std::size_t(i) * size_of(array.type), size_of(array.type));
    return bits;
}

std::string value_text(const Array& array, int i) {
    const std::uint32_t bits = bits_of(array, i);
    std::ostringstream text;
    text << "0x" << std::hex << std::setfill('0') << std::setw(2 * size_of(array.type)) << bits << std::dec << " (";
    if (array.type == Type::real) text << std::setprecision(9) << quads::float_from_bits(bits);
    if (array.type == Type::integer) text << static_cast<int>(bits);
    if (array.type == Type::byte) text << quads::e4m3_decode(static_cast<std::uint8_t>(bits));
    if (array.type == Type::codes) text << quads::e2m1_decode(bits & 15) << ", " << quads::e2m1_decode(bits >> 4);
    text << ")";
    return text.str();
}

// Representable values between two floats.
std::int64_t ulps(std::uint32_t a, std::uint32_t b) {
    const auto place = [](std::uint32_t bits) {
        const std::int64_t magnitude = bits & 0x7FFFFFFFu;
        return bits >> 31 ? -magnitude : magnitude;
    };
    return std::llabs(place(a) - place(b));
}

int count_differing(const Arrays& a, const Arrays& b) {
    int differing = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const int elements = a[i].rows * a[i].columns;
        for (int e = 0; e < elements; ++e) differing += bits_of(a[i], e) != bits_of(b[i], e);
    }
    return differing;
}

void print_array_difference(const Operation& operation, const Case& c, const Array& found, const Array& expected) {
    const int elements = found.rows * found.columns;
    std::vector<int> wrong;
    std::int64_t farthest = 0;
    for (int e = 0; e < elements; ++e) {
        if (bits_of(found, e) == bits_of(expected, e)) continue;
        wrong.push_back(e);
        farthest = std::max(farthest, ulps(bits_of(found, e), bits_of(expected, e)));
    }
    if (wrong.empty()) return;
    std::cout << "    " << found.name << ": " << wrong.size() << " of " << elements << " differ";
    if (found.type == Type::real) std::cout << ", by up to " << farthest << " ulp";
    std::cout << "\n";
    for (std::size_t i = 0; i < wrong.size() && i < kShownElements; ++i) {
        const int e = wrong[i], row = e / found.columns, column = e % found.columns;
        std::cout << "      " << found.name << "[" << row << "," << column << "]  found " << value_text(found, e)
                  << "  expected " << value_text(expected, e);
        if (bits_of(found, e) == (0xFFFFFFFFu >> (32 - 8 * size_of(found.type)))) std::cout << "  (never written?)";
        std::cout << "\n        " << operation.describe(c, found, row, column) << "\n";
    }
}

// How well one usual mistake accounts for what the kernel did, over all cases.
struct Evidence {
    long explained = 0;    // wrong elements that the mistake gives, to the bit
    long false_alarm = 0;  // elements the mistake changes and the kernel has right
};

Evidence weigh(const Flaw& flaw, const std::vector<Case>& cases, const std::vector<Arrays>& found) {
    Evidence evidence;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        Arrays flawed = cases[i].out;
        flaw.run(cases[i], flawed);
        for (std::size_t a = 0; a < flawed.size(); ++a) {
            for (int e = 0; e < flawed[a].rows * flawed[a].columns; ++e) {
                const std::uint32_t right = bits_of(cases[i].out[a], e), is = bits_of(found[i][a], e);
                const std::uint32_t wrong = bits_of(flawed[a], e);
                evidence.explained += is != right && is == wrong;
                evidence.false_alarm += is == right && wrong != right;
            }
        }
    }
    return evidence;
}

void print_guess(const Operation& operation, const std::vector<Case>& cases, const std::vector<Arrays>& found,
                 long wrong) {
    const Flaw* best = nullptr;
    Evidence best_evidence;
    bool certain = false;
    for (const Flaw& flaw : operation.flaws) {
        const Evidence evidence = weigh(flaw, cases, found);
        if (evidence.explained == wrong && evidence.false_alarm == 0) {
            std::cout << "  cause: " << flaw.cause << "\n    (every bit is what this mistake gives)\n";
            certain = true;
        }
        if (evidence.explained - evidence.false_alarm > best_evidence.explained - best_evidence.false_alarm ||
            best == nullptr) {
            best = &flaw;
            best_evidence = evidence;
        }
    }
    if (certain) return;
    if (best == nullptr || best_evidence.explained * 2 < wrong) {
        std::cout << "  cause: none of the " << operation.flaws.size() << " usual mistakes gives these bits\n";
        return;
    }
    std::cout << "  likely cause: " << best->cause << "\n    (it gives " << best_evidence.explained << " of the "
              << wrong << " wrong elements to the bit; there may be a second mistake)\n";
}

// In the child: all cases, the report, the exit status.
int verify_all(const Operation& operation, const Kernel& kernel, char* current) {
    const std::vector<Case> cases = operation.cases();
    std::vector<Arrays> results;
    long wrong = 0, elements = 0;
    int inexact = 0;
    for (const Case& c : cases) {
        std::snprintf(current, 200, "%s", shape_text(operation, c).c_str());
        std::string problem, ignored;
        results.push_back(run_kernel(operation, kernel, c, problem));
        const Arrays again = run_kernel(operation, kernel, c, ignored);
        if (problem.empty() && count_differing(results.back(), again) > 0)
            problem = "two runs on the same input differ";
        const int differing = count_differing(results.back(), c.out);
        for (const Array& array : c.out) elements += array.rows * array.columns;
        wrong += differing;
        if (differing == 0 && problem.empty()) continue;
        if (++inexact > kShownCases) continue;
        std::cout << "  " << shape_text(operation, c) << (problem.empty() ? "" : ": " + problem) << "\n";
        for (std::size_t i = 0; i < c.out.size(); ++i)
            print_array_difference(operation, c, results.back()[i], c.out[i]);
    }
    if (inexact == 0) {
        std::cout << operation.name << ": exact, " << elements << " elements in " << cases.size() << " cases\n";
        return 0;
    }
    if (inexact > kShownCases) std::cout << "  ... and " << inexact - kShownCases << " more cases\n";
    if (wrong > 0) print_guess(operation, cases, results, wrong);
    std::cout << operation.name << ": NOT exact, " << wrong << " of " << elements << " elements differ, in " << inexact
              << " of " << cases.size() << " cases\n";
    return 1;
}

int run_in_child(const Operation& operation, const Kernel& kernel) {
    const char* limit = std::getenv("VERIFY_SECONDS");
    const unsigned seconds = limit != nullptr ? std::max(1, std::atoi(limit)) : 120;
    char* current = static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::cout.flush();
    const pid_t child = fork();
    if (child == 0) {
        alarm(seconds);
        const int status = verify_all(operation, kernel, current);
        std::cout.flush();
        _exit(status);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    std::cout << operation.name << ": NOT exact, the kernel ";
    if (WTERMSIG(status) == SIGALRM)
        std::cout << "had not finished after " << seconds << " s (VERIFY_SECONDS)";
    else
        std::cout << "was ended by signal " << WTERMSIG(status) << " (" << strsignal(WTERMSIG(status)) << ")";
    std::cout << " in case " << current << "\n";
    return 1;
}

int fail_to_try(const std::string& sentence) {
    std::cerr << "verify: " << sentence << "\n";
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    std::string names;
    for (const Operation& operation : operations()) names += std::string(" ") + operation.name;
    if (argc != 3) return fail_to_try("expected OP FILE.so; operations:" + names);
    for (const Operation& operation : operations()) {
        if (std::string(operation.name) != argv[1]) continue;
        void* library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return fail_to_try(dlerror());
        const std::string symbol = std::string("kernel_") + operation.name;
        Kernel kernel{dlsym(library, symbol.c_str()), {}};
        if (kernel.symbol == nullptr) {
            return fail_to_try("the file exports no " + symbol + "; include tests/verify/kernel.h and define it.");
        }
        replace_by_symbol(library, "verify_device_allocate", kernel.memory.allocate);
        replace_by_symbol(library, "verify_device_release", kernel.memory.release);
        replace_by_symbol(library, "verify_device_copy", kernel.memory.copy);
        replace_by_symbol(library, "verify_device_finish", kernel.memory.finish);
        return run_in_child(operation, kernel);
    }
    return fail_to_try("there is no operation '" + std::string(argv[1]) + "'; expected one of" + names + ".");
}
