// A line chart as SVG text: axes with units, one colour and dash per mode, a thin line per seed and a thick one for
// their mean. Stands alone as a file and inside a page.
#pragma once

#include <string>
#include <vector>

namespace quads {

// The curves of one mode: curves[i] is one seed, its values one per step; NaN leaves a gap in the line.
struct Series {
    std::string mode;
    std::vector<std::vector<double>> curves;
};

struct Chart {
    std::string title;
    std::string y_label;       // with its unit
    bool logarithmic = false;  // y axis from data; otherwise it runs from 0 to 1. Values <= 0 leave a gap
    int smoothing = 15;        // a point is the mean of this many steps up to its own
    std::vector<Series> series;
};

std::string chart_svg(const Chart& chart);

// The colour of a mode: the same in every chart, distinguishable with any colour vision.
std::string mode_color(const std::string& mode);

}  // namespace quads
