// quads COMMAND [options]: finds the command and turns every error into one sentence and exit status 1.
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "reference/check.hpp"
#include "src/commands/arguments.hpp"
#include "src/commands/commands.hpp"
#include "src/nearest.hpp"

namespace {

struct Entry {
    const char* name;
    int (*run)(const std::vector<std::string>& arguments);
    const char* summary;
};

constexpr Entry kEntries[] = {
    {"reproduce", quads::reproduce_command, "trains several modes and writes a table, summary.json and report.html"},
    {"train", quads::train_command, "trains one mode with one seed and writes its log"},
    {"eval", quads::eval_command, "pass@1 of a checkpoint on the held-out prompts"},
    {"gap", quads::gap_command, "how far rollout and trainer of a checkpoint disagree, and why"},
    {"chart", quads::chart_command, "draws columns of logs by step"},
    {"pretrain", quads::pretrain_command, "makes the base checkpoint"},
    {"bench", quads::bench_command, "seconds per step on the CPU by operation"},
    {"op", quads::op_command, "runs one reference operation on your own .npy arrays"},
};

std::string help_text() {
    std::string text =
        "usage: quads COMMAND [options]\n\nReinforcement learning of a mixture-of-experts language model "
        "with NVFP4 rollouts,\non the CPU, to the bit.\n\ncommands:\n";
    for (const Entry& entry : kEntries) {
        std::string name = entry.name;
        name.resize(12, ' ');
        text += "  " + name + entry.summary + "\n";
    }
    return text + "\nquads COMMAND --help lists the options of a command.\n";
}

int run(const std::vector<std::string>& arguments) {
    if (arguments.empty()) quads::fail("expected a command; see quads --help.");
    if (arguments[0] == "--help" || arguments[0] == "-h") throw quads::Help{help_text()};
    std::vector<std::string> names;
    for (const Entry& entry : kEntries) {
        if (arguments[0] == entry.name) return entry.run({arguments.begin() + 1, arguments.end()});
        names.push_back(entry.name);
    }
    quads::fail("there is no command '", arguments[0], "'; the nearest is ", quads::nearest_name(arguments[0], names),
                ".");
}

}  // namespace

int main(int count, char** values) {
    try {
        return run({values + 1, values + count});
    } catch (const quads::Help& help) {
        std::cout << help.text;
        return 0;
    } catch (const std::bad_alloc&) {
        std::cerr << "quads: out of memory; free some, or choose a smaller model or batch.\n";
    } catch (const std::exception& error) {
        std::cerr << "quads: " << error.what() << "\n";
    }
    return 1;
}
