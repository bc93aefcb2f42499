// The result of several runs as a table in text and as one web page that needs neither network nor scripts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/chart.hpp"
#include "src/json_lines.hpp"

namespace quads {

struct Table {
    std::vector<std::string> header;
    std::vector<std::vector<std::string>> rows;
};

// Columns as wide as their content: the first to the left, the others to the right. Ends in a line break.
std::string text_table(const Table& table);

// The same as a Markdown table.
std::string markdown_table(const Table& table);

struct ReportRun {
    std::string name;  // the mode, or what else tells the runs of a chart apart
    std::uint32_t seed;
    RunLog log;
};

struct Report {
    std::string title;
    std::string command;  // that makes it again
    Table results;        // the first column holds modes
    std::vector<ReportRun> runs;
};

// The three charts of a report, in the order of first appearance of the modes; also useful as files of their own.
Chart reward_chart(const std::vector<ReportRun>& runs);
Chart gap_mean_chart(const std::vector<ReportRun>& runs);
Chart gap_max_chart(const std::vector<ReportRun>& runs);

// Panels of the runs' columns by step, in the order given. A column that some steps lack is drawn point to point,
// others as moving means. Error for a column that no step has, with the nearest one.
std::string column_panels(const std::string& title, const std::vector<ReportRun>& runs,
                          const std::vector<std::string>& columns);

std::string report_html(const Report& report);

}  // namespace quads
