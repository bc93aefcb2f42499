// Charts and the tables beside them: what is drawn where values are missing, and how columns and steps are chosen.
#include "src/summary.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

using namespace quads;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

// Four steps; only the first and the last have a "rare" column, and the third "often" is 0.
ReportRun small_run(const std::string& mode) {
    RunLog log;
    log.steps = {{{"often", 1.0}, {"gap_mean", 0.5}, {"rare", 3.0}},
                 {{"often", 2.0}, {"gap_mean", 0.5}},
                 {{"often", 0.0}, {"gap_mean", 0.0}},
                 {{"often", 2.0}, {"gap_mean", 0.5}, {"rare", 4.0}}};
    return {mode, 0, log};
}

}  // namespace

TEST_CASE("A line passes over steps without a value and breaks at 0 on a logarithmic axis", "[chart]") {
    const std::vector<ReportRun> runs = {small_run("naive")};
    // From x = 92 to x = 796 in one stroke, over an axis to 4.
    const std::string rare = column_panels("", runs, {"rare"});
    CHECK(count(rare, "d=\"M92.0 98.0L796.0 72.0\"") == 1);
    Chart chart = gap_mean_chart(runs);
    chart.smoothing = 1;
    const std::string svg = chart_svg(chart), path = svg.substr(svg.find("<path d=\""), 60);
    CHECK(count(path, "M") == 2);
    CHECK(count(path, "L") == 1);
}

TEST_CASE("Lines that are not named after modes have looks and room of their own", "[chart]") {
    const std::string name = "a_rather_long_name";
    const std::string svg = column_panels("", {small_run("one"), small_run("two"), small_run(name)}, {"often"});
    CHECK(count(svg, "viewBox=\"0 0 988 ") == 1);  // 796 + 48 + 18 letters of 8
    const auto color = [&](const std::string& title) {
        const std::size_t end = svg.find("<title>" + title + "</title>");
        return svg.substr(svg.rfind("stroke=\"#", end), 16);
    };
    CHECK(color("one") != color("two"));
    CHECK(color("two") != color(name));
    CHECK(color("one") != color(name));
    CHECK(count(column_panels("", {small_run("quads_token")}, {"often"}), "viewBox=\"0 0 936 ") == 1);
}

TEST_CASE("Names and titles are text, whatever characters they have", "[chart]") {
    const std::string svg = column_panels("a \"b\" & c", {small_run("<d>")}, {"often"});
    CHECK(count(svg, "aria-label=\"a &quot;b&quot; &amp; c\"") == 1);
    CHECK(count(svg, ">a &quot;b&quot; &amp; c</text>") == 1);
    CHECK(count(svg, "<title>&lt;d&gt;</title>") == 1);
    CHECK(count(svg, ">&lt;d&gt;</text>") == 1);
    CHECK(count(svg, "<d>") == 0);
}

TEST_CASE("Panels name every column and draw every mode in each", "[chart]") {
    const std::string svg = column_panels("Title", {small_run("naive"), small_run("quads")}, {"gap_mean", "often"});
    CHECK(count(svg, ">Title</text>") == 1);
    CHECK(count(svg, "mean gap") == 1);
    CHECK(count(svg, ">often</text>") == 1);
    CHECK(count(svg, "<title>naive</title>") == 2);
    CHECK(count(svg, "<title>quads</title>") == 2);
    CHECK(count(svg, "optimiser step") == 1);
    CHECK(refusal([] { column_panels("", {small_run("naive")}, {"gap_meen"}); }).find("'gap_mean'") !=
          std::string::npos);
}

TEST_CASE("The decomposition table shows five measured steps, means over seeds", "[summary][gap]") {
    RunTable runs;
    CHECK(decomposition_table(runs).rows.empty());
    for (std::uint32_t seed = 0; seed < 2; ++seed) {
        std::vector<StepRecord>& steps = runs[Mode::naive][seed];
        for (int step = 0; step < 420; ++step) {
            steps.emplace_back();
            steps.back().step = step;
            if (step % 20 != 0 && step != 419) continue;
            GapReport& gap = steps.back().gap.emplace();
            gap.act.mean = step + seed;
            gap.router_flips.by_layer = gap.code_flips.by_layer = {0.25, 0.5, 0.75};
        }
    }
    runs[Mode::quads][0].resize(420);  // measured nothing
    const Table table = decomposition_table(runs);
    REQUIRE(table.rows.size() == 5);
    const char* expected[5][2] = {{"0", "0.5000"}, {"100", "100.5000"}, {"200", "200.5000"}, {"300", "300.5000"},
                                  {"419", "419.5000"}};
    for (int row = 0; row < 5; ++row) {
        REQUIRE(table.rows[row].size() == table.header.size());
        CHECK(table.rows[row][0] == "naive");
        CHECK(table.rows[row][1] == expected[row][0]);
        CHECK(table.rows[row][5] == expected[row][1]);
        CHECK(table.rows[row][7] == "0.250-0.750");
    }
}
