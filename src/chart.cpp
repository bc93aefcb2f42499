#include "src/chart.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <tuple>

namespace quads {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr double kWidth = 936;              // room for the modes' names
constexpr double kLetter = 8;               // width of a letter of a name
constexpr double kLeft = 92, kRight = 796;  // of the plot, in pixels
constexpr double kLineHeight = 17;          // of the legend

// Okabe and Ito's palette; dashes tell lines apart where colour does not.
struct Look {
    const char *mode, *color, *dash;
};
constexpr Look kLooks[] = {
    {"bf16", "#444444", ""},           {"fp8", "#8a8a8a", "7 3"},       {"naive", "#d55e00", ""},
    {"weight_only", "#e69f00", "7 3"}, {"symmetric", "#cc79a7", "7 3"}, {"asymmetric", "#009e73", "2 3"},
    {"residual", "#8c6d1f", "2 3"},    {"quads", "#0072b2", ""},        {"quads_token", "#56b4e9", ""},
};

// A mode looks the same in every chart; other names take the looks in turn, colours before greys.
const Look& look_of(const std::string& name, std::size_t turn) {
    for (const Look& look : kLooks) {
        if (name == look.mode) return look;
    }
    return kLooks[(turn + 2) % std::size(kLooks)];
}

std::string text(const char* format, double value) {
    char buffer[64];
    std::snprintf(buffer, sizeof(buffer), format, value);
    return buffer;
}

std::vector<double> smooth(const std::vector<double>& values, int window) {
    std::vector<double> out(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        double sum = 0;
        int count = 0;
        for (std::size_t j = i + 1 >= std::size_t(window) ? i + 1 - window : 0; j <= i; ++j) {
            if (std::isnan(values[j])) continue;
            sum += values[j];
            ++count;
        }
        out[i] = count > 0 ? sum / count : kMissing;
    }
    return out;
}

// Mean over the seeds, as far as all of them have come.
std::vector<double> mean_curve(const std::vector<std::vector<double>>& curves) {
    std::size_t steps = curves.empty() ? 0 : curves[0].size();
    for (const auto& curve : curves) steps = std::min(steps, curve.size());
    std::vector<double> mean(steps, 0.0);
    for (const auto& curve : curves) {
        for (std::size_t i = 0; i < steps; ++i) mean[i] += curve[i] / double(curves.size());
    }
    return mean;
}

// Where a chart lies, in pixels from the top, and how much room its axis has.
struct Frame {
    double top, bottom;
    bool small;
};

// Maps values to pixels; chooses the ticks.
class Axes {
public:
    Axes(Scale scale, const std::vector<Series>& smoothed, std::size_t steps, Frame frame)
        : frame(frame), scale_(scale), steps_(std::max<double>(1.0, double(steps))) {
        double lowest = std::numeric_limits<double>::infinity(), highest = 0;
        for (const Series& series : smoothed) {
            for (const auto& curve : series.curves) {
                for (const double y : curve) {
                    if (!(y > 0) || std::isinf(y)) continue;
                    lowest = std::min(lowest, y);
                    highest = std::max(highest, y);
                }
            }
        }
        if (scale == Scale::share || highest == 0) return;
        if (scale == Scale::logarithmic) {
            low_ = std::floor(std::log10(lowest) * 2) / 2;
            high_ = std::max(std::ceil(std::log10(highest) * 2) / 2, low_ + 0.5);
            return;
        }
        const double decade = std::pow(10.0, std::floor(std::log10(highest)));
        for (const double digit : {10.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0}) {
            if (digit * decade >= highest) linear_high_ = digit * decade;
        }
    }

    double x(double step) const { return kLeft + (kRight - kLeft) * step / std::max(1.0, steps_ - 1); }
    double y(double value) const {
        const double place =
            scale_ == Scale::logarithmic ? (std::log10(value) - low_) / (high_ - low_) : value / linear_high_;
        return frame.bottom - (frame.bottom - frame.top) * std::clamp(place, 0.0, 1.0);
    }
    bool shows(double value) const { return std::isfinite(value) && (scale_ != Scale::logarithmic || value > 0); }

    std::vector<double> x_ticks() const {
        double step = 1;
        for (const double factor : {2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0}) {
            if (steps_ / step > 9) step = factor;
        }
        std::vector<double> ticks;
        for (double tick = 0; tick <= steps_ - 1; tick += step) ticks.push_back(tick);
        return ticks;
    }
    std::vector<double> y_ticks() const {
        if (scale_ != Scale::logarithmic) {
            if (frame.small) return {0, linear_high_ / 2, linear_high_};
            return {0, 0.2 * linear_high_, 0.4 * linear_high_, 0.6 * linear_high_, 0.8 * linear_high_, linear_high_};
        }
        std::vector<double> ticks;
        for (double decade = std::floor(low_); decade <= high_; ++decade) {
            for (const double digit : {1.0, 2.0, 5.0}) {
                const double tick = digit * std::pow(10.0, decade), place = std::log10(tick);
                if (digit > 1 && frame.small && high_ - low_ > 1.5) continue;
                if (place >= low_ - 1e-9 && place <= high_ + 1e-9) ticks.push_back(tick);
            }
        }
        return ticks;
    }

    Frame frame;

private:
    Scale scale_;
    double steps_, linear_high_ = 1, low_ = -1, high_ = 0;  // low, high: log10 of the axis' ends
};

std::string y_grid(const Axes& axes) {
    std::string svg;
    for (const double tick : axes.y_ticks()) {
        const std::string y = text("%.1f", axes.y(tick));
        svg += "<line class=\"grid\" x1=\"" + text("%g", kLeft) + "\" x2=\"" + text("%g", kRight) + "\" y1=\"" + y +
               "\" y2=\"" + y + "\"/><text x=\"" + text("%g", kLeft - 9) + "\" y=\"" + text("%.1f", axes.y(tick) + 4) +
               "\" text-anchor=\"end\">" + text("%g", tick) + "</text>\n";
    }
    return svg;
}

std::string x_ticks(const Axes& axes) {
    std::string svg;
    for (const double tick : axes.x_ticks()) {
        svg += "<text x=\"" + text("%.1f", axes.x(tick)) + "\" y=\"" + text("%g", axes.frame.bottom + 19) +
               "\" text-anchor=\"middle\">" + text("%g", tick) + "</text>\n";
    }
    return svg;
}

std::string x_line(const Axes& axes) {
    return "<line class=\"axis\" x1=\"" + text("%g", kLeft) + "\" x2=\"" + text("%g", kRight) + "\" y1=\"" +
           text("%g", axes.frame.bottom) + "\" y2=\"" + text("%g", axes.frame.bottom) + "\"/>\n";
}

std::string x_label(const Axes& axes, int smoothing) {
    return "<text x=\"" + text("%g", (kLeft + kRight) / 2) + "\" y=\"" + text("%g", axes.frame.bottom + 40) +
           "\" text-anchor=\"middle\">optimiser step" +
           (smoothing > 1 ? " (each point: mean of the last " + std::to_string(smoothing) + ")" : "") + "</text>\n";
}

std::string left_text(const char* style, double y, const std::string& content) {
    return std::string("<text class=\"") + style + "\" x=\"" + text("%g", kLeft) + text("\" y=\"%g\">", y) +
           escape(content) + "</text>\n";
}

std::string line(const std::vector<double>& curve, const Axes& axes, const std::string& name, const Look& look,
                 const char* style) {
    std::string path;
    bool pen_down = false;
    for (std::size_t i = 0; i < curve.size(); ++i) {
        if (std::isnan(curve[i])) continue;
        const bool shown = axes.shows(curve[i]);
        if (shown)
            path += (pen_down ? "L" : "M") + text("%.1f", axes.x(double(i))) + " " + text("%.1f", axes.y(curve[i]));
        pen_down = shown;
    }
    return "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + look.color + "\" stroke-dasharray=\"" + look.dash +
           "\" " + style + "><title>" + escape(name) + "</title></path>\n";
}

// Where a line leaves the plot.
struct LineEnd {
    double y;
    std::string name;
    Look look;
};

// The legend: a sample and a name at the right end of each line, pushed apart where they would overlap.
std::string legend(std::vector<LineEnd> ends, Frame frame) {
    std::sort(ends.begin(), ends.end(),
              [](const LineEnd& a, const LineEnd& b) { return std::tie(a.y, a.name) < std::tie(b.y, b.name); });
    for (std::size_t i = 1; i < ends.size(); ++i) ends[i].y = std::max(ends[i].y, ends[i - 1].y + kLineHeight);
    const double over = ends.empty() ? 0 : std::max(0.0, ends.back().y - frame.bottom);
    for (std::size_t i = 0; i < ends.size(); ++i) {
        const double room = frame.top + kLineHeight * double(i);  // pushing up must not pile the labels up at the top
        ends[i].y = std::max(room, ends[i].y - over);
    }
    std::string svg;
    for (const LineEnd& end : ends) {
        svg += "<path d=\"M" + text("%g", kRight + 8) + text(" %.1fh26\"", end.y) + " stroke=\"" + end.look.color +
               "\" stroke-width=\"2.5\" stroke-dasharray=\"" + end.look.dash + "\"/><text x=\"" +
               text("%g", kRight + 40) + text("\" y=\"%.1f\"", end.y + 4) + " class=\"name\">" + escape(end.name) +
               "</text>\n";
    }
    return svg;
}

std::vector<Series> smoothed(const Chart& chart) {
    std::vector<Series> all = chart.series;
    for (Series& series : all) {
        for (auto& curve : series.curves) curve = smooth(curve, chart.smoothing);
    }
    return all;
}

std::size_t steps_of(const Chart& chart) {
    std::size_t steps = 0;
    for (const Series& series : chart.series) {
        for (const auto& curve : series.curves) steps = std::max(steps, curve.size());
    }
    return steps;
}

double width_of(const std::vector<Series>& all) {
    double width = kWidth;
    for (const Series& series : all) width = std::max(width, kRight + 48 + kLetter * double(series.name.size()));
    return width;
}

std::string svg_head(double width, double height, const std::string& title) {
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + text("%g", width) + " " + text("%g", height) +
           "\" role=\"img\" aria-label=\"" + escape(title) +
           "\">\n<style>text { font: 13px system-ui, sans-serif; fill: #333 } .title { font-size: 16px; "
           "font-weight: 600 } .name { font-weight: 600 } .grid { stroke: #e4e4e4 } .axis { stroke: #888 }"
           "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
}

std::string curves(const std::vector<Series>& all, const Axes& axes) {
    std::string svg;
    std::vector<LineEnd> ends;
    for (const Series& series : all) {
        const Look& look = look_of(series.name, &series - all.data());
        if (series.curves.size() > 1) {
            for (const auto& curve : series.curves)
                svg += line(curve, axes, series.name, look, "stroke-width=\"1\" opacity=\"0.4\"");
        }
        const std::vector<double> mean = mean_curve(series.curves);
        svg += line(mean, axes, series.name, look, "stroke-width=\"2.5\" stroke-linejoin=\"round\"");
        if (!mean.empty() && axes.shows(mean.back())) ends.push_back({axes.y(mean.back()), series.name, look});
    }
    return svg + legend(ends, axes.frame);
}

}  // namespace

std::string escape(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '&') {
            out += "&amp;";
        } else if (c == '<') {
            out += "&lt;";
        } else if (c == '>') {
            out += "&gt;";
        } else if (c == '"') {
            out += "&quot;";
        } else {
            out += c;
        }
    }
    return out;
}

std::string mode_color(const std::string& mode) { return look_of(mode, 0).color; }

std::string chart_svg(const Chart& chart) {
    constexpr Frame kFrame{46, 330, false};
    const std::vector<Series> all = smoothed(chart);
    const Axes axes(chart.scale, all, steps_of(chart), kFrame);
    return svg_head(width_of(all), 380, chart.title) + y_grid(axes) + x_ticks(axes) + x_line(axes) +
           x_label(axes, chart.smoothing) + "<text transform=\"translate(20," +
           text("%g", (kFrame.top + kFrame.bottom) / 2) + ") rotate(-90)\" text-anchor=\"middle\">" + chart.y_label +
           "</text>\n" + left_text("title", 24, chart.title) + curves(all, axes) + "</svg>\n";
}

std::string panels_svg(const std::string& title, const std::vector<Chart>& charts) {
    constexpr double kLeast = 104, kHead = 38, kBetween = 34, kFoot = 50;
    std::size_t steps = 0, modes = 0;
    for (const Chart& chart : charts) {
        steps = std::max(steps, steps_of(chart));
        modes = std::max(modes, chart.series.size());
    }
    const double panel = std::max(kLeast, kLineHeight * double(modes));
    double top = kHead, width = kWidth;
    std::string svg;
    for (const Chart& chart : charts) {
        const std::vector<Series> all = smoothed(chart);
        const Axes axes(chart.scale, all, steps, {top + kBetween, top + kBetween + panel, true});
        svg += y_grid(axes) + x_line(axes) + left_text("name", axes.frame.top - 9, chart.y_label) + curves(all, axes);
        top = axes.frame.bottom;
        width = std::max(width, width_of(all));
        if (&chart == &charts.back()) svg += x_ticks(axes) + x_label(axes, chart.smoothing);
    }
    return svg_head(width, top + kFoot, title) + left_text("title", 24, title) + svg + "</svg>\n";
}

}  // namespace quads
