// The gap taken apart: terms against engines built by hand, flips by layer, and input that must not pass.
#include "src/gap.hpp"

#include <cmath>

#include "tests/catch.hpp"
#include "tests/compare.hpp"
#include "tests/refusal.hpp"
#include "tests/tiny_run.hpp"

using namespace quads;

namespace {

// One measurement under config.mode, with its tokens and its two engines.
struct Measured {
    explicit Measured(const RunConfig& config)
        : trainer(trainer_numerics(config.mode, config.quantization)),
          rollout(rollout_numerics(config.mode, config.quantization)),
          batch(config),
          learner(cpu_operations(), config.model, trainer, batch.tree, config.optimizer),
          engine(cpu_operations(), config.model, rollout, batch.tree),
          meter(cpu_operations(), config.model, trainer, rollout, batch.tree) {
        learner.load({initial_parameters(config.model, 2), {}, {}, 0});
        report = meter.measure(learner, engine, batch.problems, 1.0f, 3, 4);
    }

    Numerics trainer, rollout;
    TinyBatch batch;
    Learner learner;
    RolloutEngine engine;
    GapMeter meter;
    GapReport report;
};

}  // namespace

TEST_CASE("The terms of three tokens, by hand", "[gap]") {
    // ln 0.1 is -2.3026: the first token is unlikely, the others are not.
    const GapReport report =
        gap_report({{-3.0f, -0.5f, -1.0f}, {-3.5f, -0.5f, -1.0f}, {-3.5f, -0.25f, -1.0f}, {-6.0f, -0.25f, -0.25f}});
    CHECK(report.num.mean == Approx(0.5 / 3));
    CHECK(report.num.max == 0.5);
    CHECK(report.weight.mean == Approx(0.25 / 3));
    CHECK(report.weight.max == 0.25);
    CHECK(report.act.mean == Approx(3.25 / 3));
    CHECK(report.act.max == 2.5);
    CHECK(report.total.mean == Approx(4.0 / 3));
    CHECK(report.total.max == 3.0);
    CHECK(report.unlikely_tokens == Approx(1.0 / 3));
    CHECK(report.unlikely_gap == 0.75);
}

TEST_CASE("Columns that cannot be compared are refused", "[gap][bad input]") {
    const std::vector<float> good = {-1.0f, -2.0f};
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
        for (int column = 0; column < 4; ++column) {
            GapTokens tokens{good, good, good, good};
            (column == 0   ? tokens.trainer
             : column == 1 ? tokens.drifted
             : column == 2 ? tokens.rollout_weights
                           : tokens.rollout)[1] = bad;
            CHECK(refusal([&] { gap_report(tokens); }).find("token 1") != std::string::npos);
        }
    }
    CHECK(refusal([&] { gap_report({good, good, {-1.0f}, good}); }).find("1 log-probabilities") != std::string::npos);
    CHECK(!refusal([&] { gap_report({}); }).empty());
}

TEST_CASE("The terms swap one factor at a time and add up token by token", "[gap]") {
    RunConfig config = tiny_run(GENERATE(Mode::naive, Mode::fp8, Mode::symmetric, Mode::quads));
    config.quantization.drift = Drift::fp8_kv_cache;
    Measured measured(config);
    const GapTokens& tokens = measured.meter.tokens();

    // The engines once more, each factor named by hand.
    const Responses sampled = measured.engine.generate(measured.batch.problems, 1.0f, 3, 4);
    REQUIRE_SAME_BITS(tokens.rollout, sampled.logp);
    const auto score = [&](const Numerics& numerics) {
        RolloutEngine engine(cpu_operations(), config.model, numerics, measured.batch.tree);
        engine.synchronize(measured.learner.master());
        return engine.score(measured.batch.problems, sampled.tokens, 1.0f).logp;
    };
    Numerics numerics = measured.trainer;
    REQUIRE_SAME_BITS(tokens.trainer, score(numerics));
    numerics.bf16_residual = true;
    numerics.kv_cache = KvFormat::fp8;
    REQUIRE_SAME_BITS(tokens.drifted, score(numerics));
    numerics.weights = measured.rollout.weights;
    REQUIRE_SAME_BITS(tokens.rollout_weights, score(numerics));

    double num = 0;
    for (std::size_t i = 0; i < tokens.trainer.size(); ++i) {
        const auto term = [i](const std::vector<float>& a, const std::vector<float>& b) { return double(a[i]) - b[i]; };
        const double sum = term(tokens.trainer, tokens.drifted) + term(tokens.drifted, tokens.rollout_weights) +
                           term(tokens.rollout_weights, tokens.rollout);
        CHECK(sum == Approx(term(tokens.trainer, tokens.rollout)).margin(1e-12));
        num += std::fabs(term(tokens.trainer, tokens.drifted)) / static_cast<double>(tokens.trainer.size());
    }
    CHECK(num > 0.0);
    CHECK(measured.report.num.mean == Approx(num));
}

TEST_CASE("Flips by layer average to the total", "[gap]") {
    for (Mode mode : {Mode::naive, Mode::quads}) {
        RunConfig config = tiny_run(mode);
        config.model.layers = 3;
        const GapReport report = Measured(config).report;
        for (const Flips* flips : {&report.router_flips, &report.code_flips}) {
            REQUIRE(flips->by_layer.size() == 3);
            const double mean = (flips->by_layer[0] + flips->by_layer[1] + flips->by_layer[2]) / 3;
            CHECK(flips->fraction > 0.0);
            CHECK(flips->fraction == Approx(mean));
            // The errors of a layer are the input of the next.
            CHECK(flips->by_layer[0] < flips->by_layer[2]);
        }
    }
}

TEST_CASE("A checkpoint with a NaN has no gap report", "[gap][bad input]") {
    const RunConfig config = tiny_run(Mode::bf16);
    std::vector<float> parameters = initial_parameters(config.model, 2);
    parameters[ParameterLayout(config.model).head.offset] = NAN;
    CHECK(!refusal([&] { measure_gap(cpu_operations(), config, parameters); }).empty());
}
