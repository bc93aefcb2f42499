#include <cstdio>
#include <filesystem>

#include "reference/check.hpp"
#include "src/commands/arguments.hpp"
#include "src/commands/commands.hpp"
#include "src/config.hpp"
#include "src/files.hpp"
#include "src/report.hpp"

namespace quads {

int chart_command(const std::vector<std::string>& raw) {
    const Arguments arguments(
        raw, {"chart",
              "Columns of the logs of runs by step, as panels below each other in one SVG. Logs of one name are its\n"
              "seeds: thin lines, and a thick one for their mean.",
              "LOG...",
              {
                  {"--columns", "LIST", "comma-separated (default gap_mean,ratio_max,clip_fraction,entropy,reward)"},
                  {"--by", "WHAT", "what names a log: its mode, or the folder that it is in (default mode)"},
                  {"--title", "TEXT", "above the panels (default: none)"},
                  {"--out", "FILE", "SVG to write"},
              }});
    const std::string out = arguments.required("--out");
    check(!arguments.positionals().empty(), "quads chart needs at least one LOG; see quads chart --help.");
    const std::string by = arguments.value("--by").value_or("mode");
    check(by == "mode" || by == "folder", "--by expects mode or folder, found '", by, "'.");
    std::vector<ReportRun> runs;
    for (const std::string& path : arguments.positionals()) {
        RunLog log = read_run_log(path);
        const RunConfig config = config_from_json(log.config);
        const std::string folder = std::filesystem::absolute(path).lexically_normal().parent_path().filename();
        runs.push_back({by == "mode" ? name_of(config.mode) : folder, config.seed, std::move(log)});
    }
    const std::vector<std::string> columns =
        arguments.list("--columns", "gap_mean,ratio_max,clip_fraction,entropy,reward");
    write_file_atomically(out, column_panels(arguments.value("--title").value_or(""), runs, columns));
    std::printf("%s\n", out.c_str());
    return 0;
}

}  // namespace quads
