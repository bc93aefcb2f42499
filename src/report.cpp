#include "src/report.hpp"

#include <algorithm>
#include <cmath>

#include "reference/check.hpp"
#include "src/nearest.hpp"

namespace quads {
namespace {

// How panels show the columns of a log; others are linear under their own name.
struct Panel {
    const char *column, *label;
    Scale scale;
};
constexpr Panel kPanels[] = {
    {"reward", "reward", Scale::share},
    {"gap_mean", "mean gap |Δ log p| (nat), log axis", Scale::logarithmic},
    {"gap_max", "largest gap |Δ log p| (nat), log axis", Scale::logarithmic},
    {"ratio_max", "largest importance ratio, log axis", Scale::logarithmic},
    {"clip_fraction", "share of tokens with a clipped ratio", Scale::linear},
    {"entropy", "entropy of the trainer (nat)", Scale::linear},
    {"delta_num_mean", "engine drift: mean |δ_num| (nat), log axis", Scale::logarithmic},
    {"delta_weight_mean", "weights: mean |δ_weight| (nat), log axis; exactly 0 under QAT", Scale::logarithmic},
    {"delta_act_mean", "activations: mean |δ_act| (nat), log axis", Scale::logarithmic},
};

std::vector<Series> series_of(const std::vector<ReportRun>& runs, const std::string& column) {
    std::vector<Series> all;
    for (const ReportRun& run : runs) {
        auto series = std::find_if(all.begin(), all.end(), [&](const Series& s) { return s.name == run.name; });
        if (series == all.end()) series = all.insert(all.end(), Series{run.name, {}});
        series->curves.push_back(run.log.column(column));
    }
    return all;
}

// Characters of a UTF-8 text, for the width of a column.
std::size_t length(const std::string& text) {
    return std::size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string table_html(const Table& table) {
    std::string html = "<table>\n<tr>";
    for (const std::string& cell : table.header) html += "<th>" + escape(cell) + "</th>";
    html += "</tr>\n";
    for (const auto& row : table.rows) {
        html += "<tr>";
        for (std::size_t i = 0; i < row.size(); ++i) {
            html += i > 0 ? "<td>" : "<td><span style=\"background:" + mode_color(row[0]) + "\"></span>";
            html += escape(row[i]) + "</td>";
        }
        html += "</tr>\n";
    }
    return html + "</table>\n";
}

}  // namespace

std::string text_table(const Table& table) {
    std::vector<std::vector<std::string>> lines{table.header};
    lines.insert(lines.end(), table.rows.begin(), table.rows.end());
    std::vector<std::size_t> widths(table.header.size(), 0);
    for (const auto& cells : lines) {
        for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], length(cells[i]));
    }
    std::string text;
    for (const auto& cells : lines) {
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string space(widths[i] - length(cells[i]), ' ');
            text += (i > 0 ? "  " + space + cells[i] : cells[i] + space);
        }
        text += "\n";
    }
    return text;
}

std::string markdown_table(const Table& table) {
    const auto row = [](const std::vector<std::string>& cells) {
        std::string line = "|";
        for (const std::string& cell : cells) line += " " + cell + " |";
        return line + "\n";
    };
    std::string text = row(table.header) + row(std::vector<std::string>(table.header.size(), "---"));
    for (const auto& cells : table.rows) text += row(cells);
    return text;
}

Chart reward_chart(const std::vector<ReportRun>& runs) {
    return {"Reward", "mean reward of a step's responses (0 to 1)", Scale::share, 15, series_of(runs, "reward")};
}
Chart gap_mean_chart(const std::vector<ReportRun>& runs) {
    return {"Mean gap between trainer and rollout", "mean |Δ log p| (nat), log axis", Scale::logarithmic, 15,
            series_of(runs, "gap_mean")};
}
Chart gap_max_chart(const std::vector<ReportRun>& runs) {
    return {"Largest gap between trainer and rollout", "max |Δ log p| (nat), log axis", Scale::logarithmic, 15,
            series_of(runs, "gap_max")};
}

std::string column_panels(const std::string& title, const std::vector<ReportRun>& runs,
                          const std::vector<std::string>& columns) {
    std::vector<std::string> known;
    for (const ReportRun& run : runs) {
        for (const Record& step : run.log.steps) {
            for (const auto& entry : step) {
                if (std::find(known.begin(), known.end(), entry.first) == known.end()) known.push_back(entry.first);
            }
        }
    }
    std::vector<Chart> charts;
    for (const std::string& column : columns) {
        check(std::find(known.begin(), known.end(), column) != known.end(), "the logs have no column '", column,
              "'; the nearest is '", nearest_name(column, known), "'.");
        Chart chart{title, column, Scale::linear, 15, series_of(runs, column)};
        for (const Panel& panel : kPanels) {
            if (column == panel.column) chart.y_label = panel.label, chart.scale = panel.scale;
        }
        for (const Series& series : chart.series) {
            for (const auto& curve : series.curves) {
                for (double value : curve) chart.smoothing = std::isnan(value) ? 1 : chart.smoothing;
            }
        }
        charts.push_back(std::move(chart));
    }
    return panels_svg(title, charts);
}

std::string report_html(const Report& report) {
    std::string html =
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
        escape(report.title) +
        "</title>\n<style>\n"
        "body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 960px; margin: 2rem auto; "
        "padding: 0 1rem }\n"
        "h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } svg { width: 100%; height: auto }\n"
        "table { border-collapse: collapse; font-variant-numeric: tabular-nums } "
        "td, th { padding: .35rem .8rem; border-bottom: 1px solid #ddd; text-align: right }\n"
        "td:first-child, th:first-child { text-align: left } "
        "td span { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .5em }\n"
        "pre { background: #f5f5f5; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 13px }\n"
        "</style>\n</head>\n<body>\n<h1>" +
        escape(report.title) + "</h1>\n" + table_html(report.results) +
        "<p>Thick lines are means over seeds, thin lines single seeds. The gap is the difference of the two engines' "
        "log-probabilities of the sampled tokens, before any clamp.</p>\n" +
        chart_svg(reward_chart(report.runs)) + chart_svg(gap_mean_chart(report.runs)) +
        chart_svg(gap_max_chart(report.runs)) + "<h2>Make it again</h2>\n<pre>" + escape(report.command) + "</pre>\n";
    if (!report.runs.empty()) {
        html += "<h2>Configuration</h2>\n<p>Of the first run; the others differ in mode and seed only.</p>\n<pre>" +
                escape(report.runs[0].log.config) + "</pre>\n";
    }
    return html + "</body>\n</html>\n";
}

}  // namespace quads
