#include "src/json_lines.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include <nlohmann/json.hpp>

#include "reference/check.hpp"
#include "src/files.hpp"
#include "src/json_text.hpp"

namespace quads {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

// Whole lines of a text, without their line ends; text after the last line end is torn and left out.
std::vector<std::string> whole_lines(const std::string& text) {
    std::vector<std::string> lines;
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
        lines.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return lines;
}

// False where the line is not an object of numbers and nulls.
bool parse_record(const std::string& line, Record& record) {
    const nlohmann::ordered_json object = nlohmann::ordered_json::parse(line, nullptr, false);
    if (!object.is_object()) return false;
    for (const auto& item : object.items()) {
        if (!item.value().is_number() && !item.value().is_null()) return false;
        record.emplace_back(item.key(), item.value().is_null() ? kMissing : item.value().get<double>());
    }
    return true;
}

}  // namespace

std::string to_json(const Record& record) {
    std::string text = "{";
    for (const auto& [name, value] : record) {
        text += (text.size() > 1 ? "," : "") + json_string(name) + ":" + json_number(value);
    }
    return text + "}";
}

std::vector<double> RunLog::column(const std::string& name) const {
    std::vector<double> values;
    for (const Record& step : steps) {
        values.push_back(kMissing);
        for (const auto& [key, value] : step) {
            if (key == name) values.back() = value;
        }
    }
    return values;
}

RunLog read_run_log(const std::string& path) {
    const std::vector<std::string> lines = whole_lines(read_file(path));
    check(!lines.empty(), path, " has no whole line; it is not the log of a run.");
    const nlohmann::json config = nlohmann::json::parse(lines[0], nullptr, false);
    check(config.is_object(), path, " does not begin with a configuration; it is not the log of a run.");
    RunLog log{lines[0], {}};
    for (std::size_t i = 1; i < lines.size(); ++i) {
        Record record;
        if (parse_record(lines[i], record)) {
            log.steps.push_back(std::move(record));
        } else {
            check(i + 1 == lines.size(), path, " is damaged in line ", i + 1, "; only the last line may be.");
        }
    }
    return log;
}

RunLogWriter RunLogWriter::create(const std::string& path, const std::string& config) {
    create_parent_folder(path);
    write_file_atomically(path, config + "\n");
    return RunLogWriter(path);
}

RunLogWriter RunLogWriter::resume(const std::string& path, std::size_t steps) {
    const RunLog log = read_run_log(path);
    check(log.steps.size() >= steps, path, " has ", log.steps.size(), " steps, but the checkpoint has ", steps,
          "; they are not of the same run.");
    // The lines themselves are kept, not written anew, so that their bytes stay as they are.
    const std::vector<std::string> lines = whole_lines(read_file(path));
    std::string kept;
    for (std::size_t i = 0; i <= steps; ++i) kept += lines[i] + "\n";
    write_file_atomically(path, kept);
    return RunLogWriter(path);
}

RunLogWriter::RunLogWriter(const std::string& path) : path_(path) {
    file_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    check(file_ >= 0, "cannot write the log ", path, ": ", std::strerror(errno), ".");
}

RunLogWriter::RunLogWriter(RunLogWriter&& other) noexcept : path_(std::move(other.path_)), file_(other.file_) {
    other.file_ = -1;
}

RunLogWriter::~RunLogWriter() {
    if (file_ >= 0) close(file_);
}

void RunLogWriter::append(const Record& record) {
    const std::string line = to_json(record) + "\n";
    const ssize_t written = write(file_, line.data(), line.size());
    check(written == static_cast<ssize_t>(line.size()), "cannot write the log ", path_, ": ",
          written < 0 ? std::strerror(errno) : "the disk is full", "; the run can be resumed from its checkpoint.");
}

}  // namespace quads
