// The log of a run, one JSON object a line: first the resolved configuration, then a line per step. Each line is
// written whole by one write(): a run killed at any moment leaves at most one torn line at the end, which reading
// ignores.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace quads {

// The numbers of one step, in the order in which they are written. NaN and infinities are written as null.
using Record = std::vector<std::pair<std::string, double>>;

// {"step":1,"reward":0.5}
std::string to_json(const Record& record);

struct RunLog {
    std::string config;  // first line
    std::vector<Record> steps;

    // One number of every step, NaN where a step has none.
    std::vector<double> column(const std::string& name) const;
};

// Error where the file is missing, its first line is not a configuration, or a line other than the last is damaged; a
// last line that is damaged or lacks its line end is left out.
RunLog read_run_log(const std::string& path);

class RunLogWriter {
public:
    // Starts a new log, in place of any that was there, and creates its folder.
    static RunLogWriter create(const std::string& path, const std::string& config);

    // Continues a log after its first `steps` steps; later lines are cut off, atomically. Error where it has fewer.
    static RunLogWriter resume(const std::string& path, std::size_t steps);

    RunLogWriter(RunLogWriter&& other) noexcept;
    RunLogWriter& operator=(RunLogWriter&&) = delete;
    ~RunLogWriter();

    // One write(); Error where the line does not get out whole.
    void append(const Record& record);

private:
    explicit RunLogWriter(const std::string& path);

    std::string path_;
    int file_;
};

}  // namespace quads
