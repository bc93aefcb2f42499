#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "reference/parallel.hpp"
#include "src/commands/commands.hpp"
#include "src/commands/run_options.hpp"
#include "src/files.hpp"
#include "src/report.hpp"
#include "src/summary.hpp"

namespace quads {
namespace {

// The runs in progress, a line each: rewritten in place on a terminal, a new line now and then elsewhere.
class Progress {
public:
    explicit Progress(long steps) : remaining_(steps), terminal_(isatty(STDOUT_FILENO)) {}

    // Steps that an earlier call has done.
    void skip(int steps) { remaining_ -= steps; }

    void step(const RunConfig& config, const StepRecord& r) {
        ++done_;
        --remaining_;
        const bool last = r.step + 1 == config.steps;
        if (!terminal_ && r.step % 60 != 0 && !last) return;
        const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        char line[200];
        std::snprintf(line, sizeof line,
                      "%-12s seed %u  step %4d of %d  reward %.3f  mean gap %.4f  max gap %6.3f  %.2f s/step  ETA %s",
                      name_of(config.mode).c_str(), config.seed, r.step + 1, config.steps, r.reward,
                      r.mismatch.gap_mean, r.mismatch.gap_max, r.seconds,
                      clock_text(elapsed / static_cast<double>(done_) * static_cast<double>(remaining_)).c_str());
        if (terminal_) {
            const std::size_t drawn = lines_.size();
            lines_[{config.mode, config.seed}] = line;
            if (drawn > 0) std::printf("\033[%zuA", drawn);  // up to the first of the lines
            if (last) {                                      // it moves above the others, to stay
                std::printf("%s\033[K\n", line);
                lines_.erase({config.mode, config.seed});
            }
            for (const auto& running : lines_) std::printf("%s\033[K\n", running.second.c_str());
        } else {
            std::printf("%s\n", line);
        }
        std::fflush(stdout);
    }

private:
    long done_ = 0, remaining_;
    bool terminal_;
    std::map<std::pair<Mode, std::uint32_t>, std::string> lines_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The log of a run that needs no more work, or none.
std::optional<RunLog> finished_log(const std::string& path, const RunConfig& config) {
    if (!std::ifstream(path).good()) return std::nullopt;
    RunLog log = read_run_log(path);
    if (log.config != to_json(config) || static_cast<int>(log.steps.size()) != config.steps) return std::nullopt;
    return log;
}

// Trains the runs that are not finished, as many side by side as there are threads, and writes the results after each.
class Reproduction {
public:
    Reproduction(const Operations& operations, std::vector<RunConfig> configs, std::string out, std::string command)
        : operations_(operations),
          configs_(std::move(configs)),
          out_(std::move(out)),
          command_(std::move(command)),
          logs_(configs_.size()),
          progress_(static_cast<long>(configs_.size()) * configs_[0].steps) {}

    Table run() {
        for (std::size_t i = 0; i < configs_.size(); ++i) {
            std::optional<RunLog> log = finished_log(log_path(configs_[i]), configs_[i]);
            if (!log) continue;
            take(i, *std::move(log));
            progress_.skip(configs_[i].steps);
        }
        // Every core, and every GPU, is used best by whole runs (see MachineShare).
        const int missing = static_cast<int>(std::count(logs_.begin(), logs_.end(), std::nullopt));
        std::vector<std::thread> workers;
        for (int i = 1; i < std::min(threads(), missing); ++i) workers.emplace_back([this] { work(); });
        work();
        for (std::thread& worker : workers) worker.join();
        if (error_) std::rethrow_exception(error_);
        if (missing == 0) write_results();
        return results_;
    }

private:
    std::string name(const RunConfig& config) const {
        return out_ + "/" + name_of(config.mode) + "_seed" + std::to_string(config.seed);
    }
    std::string log_path(const RunConfig& config) const { return name(config) + ".jsonl"; }

    // Takes unfinished runs until there is none, from the end of the list, where by custom the dearest modes are: whoever
    // runs last is alone on the machine, and that should not last long. Everything outside train() is under the lock.
    void work() {
        const MachineShare share;
        std::unique_lock<std::mutex> lock(mutex_);
        try {
            while (left_ > 0 && !error_) {
                const std::size_t i = --left_;
                if (logs_[i]) continue;
                lock.unlock();
                train_one(configs_[i]);
                lock.lock();
                take(i, read_run_log(log_path(configs_[i])));
                write_results();  // so that a broken reproduction is already readable
            }
        } catch (...) {
            if (!lock.owns_lock()) lock.lock();
            if (!error_) error_ = std::current_exception();
        }
    }

    void train_one(const RunConfig& config) {
        const std::string checkpoint = name(config) + ".safetensors";
        bool first = true;
        train(operations_, config, {log_path(config), checkpoint, std::ifstream(checkpoint).good()},
              [&](const StepRecord& r) {
                  const std::lock_guard<std::mutex> lock(mutex_);
                  if (first) progress_.skip(r.step);  // done before this run was resumed
                  first = false;
                  progress_.step(config, r);
              });
    }

    void take(std::size_t i, RunLog log) {
        std::vector<StepRecord>& steps = runs_[configs_[i].mode][configs_[i].seed];
        for (const Record& record : log.steps) steps.push_back(step_of(record));
        logs_[i] = std::move(log);
    }

    void write_results() {
        results_ = summary_table(runs_);
        Report report{"QUADS: reward and trainer-rollout gap", command_, results_, {}};
        for (std::size_t i = 0; i < configs_.size(); ++i) {
            if (logs_[i]) report.runs.push_back({name_of(configs_[i].mode), configs_[i].seed, *logs_[i]});
        }
        write_file_atomically(out_ + "/summary.json", summary_json(runs_));
        write_file_atomically(out_ + "/results.md", markdown_table(results_));
        write_file_atomically(out_ + "/reward.svg", chart_svg(reward_chart(report.runs)));
        write_file_atomically(out_ + "/gap.svg", chart_svg(gap_mean_chart(report.runs)));
        write_file_atomically(out_ + "/report.html", report_html(report));
        const Table decomposition = decomposition_table(runs_);
        if (decomposition.rows.empty()) return;
        write_file_atomically(out_ + "/decomposition.md", markdown_table(decomposition));
        write_file_atomically(out_ + "/decomposition.svg",
                              column_panels("Where the gap comes from", report.runs,
                                            {"delta_num_mean", "delta_weight_mean", "delta_act_mean"}));
    }

    const Operations& operations_;
    const std::vector<RunConfig> configs_;
    const std::string out_, command_;
    std::mutex mutex_;  // guards all that follows
    std::vector<std::optional<RunLog>> logs_;
    RunTable runs_;  // the steps of logs_
    Table results_;  // of runs_, as written last
    std::size_t left_ = configs_.size();  // runs that nobody has taken
    std::exception_ptr error_;
    Progress progress_;
};

}  // namespace

int reproduce_command(const std::vector<std::string>& raw) {
    const Arguments arguments(
        raw, {"reproduce",
              "One run per mode and seed under one configuration. Writes a log and a checkpoint per run and, from the\n"
              "logs, report.html, summary.json, results.md, reward.svg and gap.svg; with evaluation.decomposition_every\n"
              "also decomposition.md and decomposition.svg. Started again, it keeps finished runs (their logs are\n"
              "enough) and continues broken ones.",
              "",
              with_run_options({
                  {"--modes", "LIST", "comma-separated (default bf16,naive,symmetric,asymmetric,quads)"},
                  {"--seeds", "N", "number of seeds, counted up from --seed (default 1)"},
                  {"--steps", "N", "optimiser steps of each run (default 420)"},
                  {"--out", "DIR", "folder to write"},
              })});
    const std::string out = arguments.required("--out");
    std::vector<Mode> modes;
    for (const std::string& name : arguments.list("--modes", "bf16,naive,symmetric,asymmetric,quads")) {
        modes.push_back(mode_from_name(name));
    }
    const int seeds = static_cast<int>(arguments.integer("--seeds", 1, 1000).value_or(1));
    const RunConfig base = config_of(arguments);
    const Operations& operations = device_of(arguments);
    std::printf("%s\ndevice %s, %zu modes, %d seeds, %d steps each, folder %s\n", to_json(base).c_str(),
                operations.device, modes.size(), seeds, base.steps, out.c_str());

    std::string command = "quads reproduce";
    for (const std::string& argument : raw) command += " " + argument;
    std::vector<RunConfig> configs;
    for (int s = 0; s < seeds; ++s) {
        for (Mode mode : modes) {
            configs.push_back(base);
            configs.back().mode = mode;
            configs.back().seed = base.seed + static_cast<std::uint32_t>(s);
        }
    }
    const Table results = Reproduction(operations, std::move(configs), out, command).run();
    std::printf("\n%s\nLogs, summary.json and report.html are in %s. Open %s/report.html in a browser.\n",
                text_table(results).c_str(), out.c_str(), out.c_str());
    return 0;
}

}  // namespace quads
