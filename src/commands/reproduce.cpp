#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>

#include "src/commands/commands.hpp"
#include "src/commands/run_options.hpp"
#include "src/files.hpp"
#include "src/report.hpp"
#include "src/summary.hpp"

namespace quads {
namespace {

std::vector<Mode> modes_of(const std::string& list) {
    std::vector<Mode> modes;
    std::istringstream names(list);
    for (std::string name; std::getline(names, name, ',');) modes.push_back(mode_from_name(name));
    check(!modes.empty(), "--modes is empty, expected names separated by commas such as bf16,naive,quads.");
    return modes;
}

// One status line for the run in progress: rewritten in place on a terminal, a new line now and then elsewhere.
class Progress {
public:
    explicit Progress(int runs) : runs_(runs), terminal_(isatty(STDOUT_FILENO)) {}

    void step(int run, const RunConfig& config, const StepRecord& r) {
        ++done_here_;
        const int remaining = (runs_ - run) * config.steps - r.step - 1;
        if (!terminal_ && r.step % 60 != 0 && r.step + 1 != config.steps) return;
        const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        std::printf("%s%-12s seed %u  step %4d of %d  reward %.3f  mean gap %.4f  max gap %6.3f  %.2f s/step  ETA %s%s",
                    terminal_ ? "\r" : "", name_of(config.mode).c_str(), config.seed, r.step + 1, config.steps,
                    r.reward, r.mismatch.gap_mean, r.mismatch.gap_max, r.seconds,
                    clock_text(elapsed / done_here_ * remaining).c_str(), terminal_ ? "  " : "\n");
        if (terminal_ && r.step + 1 == config.steps) std::printf("\n");
        std::fflush(stdout);
    }

private:
    int runs_, done_here_ = 0;
    bool terminal_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The log of a run that needs no more work, or none.
std::optional<RunLog> finished_log(const std::string& path, const RunConfig& config) {
    if (!std::ifstream(path).good()) return std::nullopt;
    RunLog log = read_run_log(path);
    if (log.config != to_json(config) || static_cast<int>(log.steps.size()) != config.steps) return std::nullopt;
    return log;
}

void write_results(const std::string& out, const RunTable& runs, Report& report) {
    report.results = summary_table(runs);
    write_file_atomically(out + "/summary.json", summary_json(runs));
    write_file_atomically(out + "/results.md", markdown_table(report.results));
    write_file_atomically(out + "/reward.svg", chart_svg(reward_chart(report.runs)));
    write_file_atomically(out + "/gap.svg", chart_svg(gap_mean_chart(report.runs)));
    write_file_atomically(out + "/report.html", report_html(report));
}

}  // namespace

int reproduce_command(const std::vector<std::string>& raw) {
    const Arguments arguments(
        raw, {"reproduce",
              "One run per mode and seed under one configuration. Writes a log and a checkpoint per run and, from the\n"
              "logs, report.html, summary.json, results.md, reward.svg and gap.svg. Started again, it keeps finished\n"
              "runs (their logs are enough) and continues broken ones.",
              "",
              with_run_options({
                  {"--modes", "LIST", "comma-separated (default bf16,naive,symmetric,asymmetric,quads)"},
                  {"--seeds", "N", "number of seeds, counted up from --seed (default 1)"},
                  {"--steps", "N", "optimiser steps of each run (default 420)"},
                  {"--out", "DIR", "folder to write"},
              })});
    const std::string out = arguments.required("--out");
    const std::vector<Mode> modes =
        modes_of(arguments.value("--modes").value_or("bf16,naive,symmetric,asymmetric,quads"));
    const int seeds = static_cast<int>(arguments.integer("--seeds", 1, 1000).value_or(1));
    const RunConfig base = config_of(arguments);
    const Operations& operations = device_of(arguments);
    std::printf("%s\ndevice %s, %zu modes, %d seeds, %d steps each, folder %s\n", to_json(base).c_str(),
                operations.device, modes.size(), seeds, base.steps, out.c_str());

    std::string command = "quads reproduce";
    for (const std::string& argument : raw) command += " " + argument;
    RunTable runs;
    Report report{"QUADS: reward and trainer-rollout gap", command, {}, {}};
    int run = 0;
    bool stale = false;  // a finished run was read since the results were written
    Progress progress(static_cast<int>(modes.size()) * seeds);
    for (int s = 0; s < seeds; ++s) {
        for (Mode mode : modes) {
            RunConfig config = base;
            config.mode = mode;
            config.seed = base.seed + static_cast<std::uint32_t>(s);
            const std::string name = out + "/" + name_of(mode) + "_seed" + std::to_string(config.seed);
            const std::string path = name + ".jsonl";
            std::vector<StepRecord>& steps = runs[mode][config.seed];
            std::optional<RunLog> log = finished_log(path, config);
            stale = log.has_value();
            if (log) {
                for (const Record& record : log->steps) steps.push_back(step_of(record));
            } else {
                const std::string checkpoint = name + ".safetensors";
                steps = train(operations, config, {path, checkpoint, std::ifstream(checkpoint).good()},
                              [&](const StepRecord& r) { progress.step(run, config, r); });
                log = read_run_log(path);
            }
            report.runs.push_back({name_of(mode), config.seed, *std::move(log)});
            ++run;
            // After every run that was trained, so that a broken reproduction is already readable.
            if (!stale) write_results(out, runs, report);
        }
    }
    if (stale) write_results(out, runs, report);
    std::printf("\n%s\nLogs, summary.json and report.html are in %s. Open %s/report.html in a browser.\n",
                text_table(report.results).c_str(), out.c_str(), out.c_str());
    return 0;
}

}  // namespace quads
