// Line charts as SVG text: axes with units, one colour and dash per mode or other name, a thin line per seed and a
// thick one for their mean. They stand alone as files and inside a page.
#pragma once

#include <string>
#include <vector>

namespace quads {

// The curves of one mode, or of what else tells runs apart: curves[i] is one seed, its values one per step; a line
// passes over NaN.
struct Series {
    std::string name;
    std::vector<std::vector<double>> curves;
};

// The y axis.
enum class Scale {
    share,        // 0 to 1
    linear,       // 0 to beyond the largest value
    logarithmic,  // around the values; those <= 0 leave a gap in the line
};

struct Chart {
    std::string title;
    std::string y_label;  // with its unit
    Scale scale = Scale::share;
    int smoothing = 15;  // a point is the mean of this many steps up to its own
    std::vector<Series> series;
};

std::string chart_svg(const Chart& chart);

// Small charts below each other over one axis of steps, as long as the longest, each under its y label.
std::string panels_svg(const std::string& title, const std::vector<Chart>& charts);

// The colour of a mode: the same in every chart, distinguishable with any colour vision.
std::string mode_color(const std::string& mode);

// Text as SVG and HTML write it, in attributes too.
std::string escape(const std::string& text);

}  // namespace quads
