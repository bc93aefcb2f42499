// The model as a whole: its gradient, its two engines, and what their agreement rests on.
#include <cmath>
#include <cstring>

#include "src/gap.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"
#include "tests/packed.hpp"
#include "tests/tiny_run.hpp"

using namespace quads;

namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Mean negative log-probability of the batch's responses, and (update given) its gradient step.
double loss(Learner& learner, const TinyBatch& batch) {
    double sum = 0;
    const TrainerScores scores = learner.score(batch.problems, batch.responses, 1.0f, nullptr);
    for (float logp : scores.logp) sum -= logp;
    return sum / static_cast<double>(batch.responses.size());
}

}  // namespace

TEST_CASE("Each tensor's gradient predicts how the loss changes along it", "[model][backward]") {
    const Mode mode = GENERATE(Mode::bf16, Mode::asymmetric);
    RunConfig config = tiny_run(mode);
    // Every expert is active: a top-k choice that changes would make the loss jump.
    config.model.active_experts = config.model.experts;
    // Plain gradient descent out of AdamW: with beta1 = 0, beta2 -> 0 and a huge epsilon, the step is learning_rate *
    // grad / epsilon, so the gradient can be read off the parameters.
    config.optimizer.beta1 = 0;
    config.optimizer.beta2 = 0;
    config.optimizer.epsilon = 1024;
    config.optimizer.max_gradient_norm = 1e9f;
    const TinyBatch batch(config);
    const std::vector<float> parameters = initial_parameters(config.model, 3);
    Learner learner(cpu_operations(), config.model, trainer_numerics(mode, config.quantization), batch.tree,
                    config.optimizer);
    learner.load({parameters, {}, {}, 0});
    loss(learner, batch);
    const float share = -1.0f / static_cast<float>(batch.responses.size());
    learner.update(std::vector<float>(batch.responses.size(), share), 0.0f, 1024.0f);
    std::vector<float> gradient = learner.state().parameters;
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = parameters[i] - gradient[i];

    for (const ParameterShape& p : ParameterLayout(config.model).all()) {
        double squares = 0;
        for (std::size_t i = 0; i < p.size(); ++i) squares += std::pow(gradient[p.offset + i], 2);
        const double norm = std::sqrt(squares);
        INFO(p.name << ", gradient norm " << norm);
        REQUIRE(norm > 0);
        // Far enough that BF16 (or FP4) rounding of the weights averages out, near enough to be almost linear.
        const double h =
            0.05 * std::sqrt(static_cast<double>(p.size())) * (p.columns == static_cast<int>(p.size()) ? 0.4 : 0.2);
        const auto moved = [&](double sign) {
            std::vector<float> there = parameters;
            for (std::size_t i = 0; i < p.size(); ++i) {
                there[p.offset + i] += static_cast<float>(sign * h * gradient[p.offset + i] / norm);
            }
            learner.load({there, {}, {}, 0});
            return loss(learner, batch);
        };
        const double slope = (moved(1) - moved(-1)) / (2 * h);
        // Rounded weights and the straight-through estimator leave about a tenth; a wrong or missing term leaves all.
        const bool quantized = mode == Mode::asymmetric && (p.name.find("gate_up") + 1 || p.name.find("down") + 1);
        CHECK(slope == Approx(norm).epsilon(quantized ? 0.4 : 0.15));
    }
}

TEST_CASE("Identical engines leave no gap", "[model][gap]") {
    // Symmetric with per-token scales too: the same codes come out of the same inputs.
    const Mode mode = GENERATE(Mode::bf16, Mode::symmetric);
    for (Scope scope : {Scope::experts, Scope::all_linears}) {
        RunConfig config = tiny_run(mode);
        config.quantization.drift = Drift::none;
        config.quantization.scope = scope;
        const GapReport report = measure_gap(cpu_operations(), config, initial_parameters(config.model, 1));
        CHECK(report.total.max == 0.0);
        CHECK(report.router_flips.fraction == 0.0);
        CHECK(report.code_flips.fraction == 0.0);
        CHECK(report.unlikely_gap == 0.0);
    }
}

TEST_CASE("Drift opens a gap, and an outer scale per tensor does without drift", "[model][gap]") {
    RunConfig config = tiny_run(Mode::symmetric);
    const std::vector<float> parameters = initial_parameters(config.model, 1);
    CHECK(measure_gap(cpu_operations(), config, parameters).total.max > 0.0);
    // A scale shared by all rows of a GEMM depends on which rows are computed together.
    config.quantization.drift = Drift::none;
    config.quantization.activation_outer_scale = OuterScale::group;
    CHECK(measure_gap(cpu_operations(), config, parameters).total.max > 0.0);
}

TEST_CASE("The weight term of the gap is exactly zero under QAT and is not without", "[model][gap]") {
    for (Mode mode : all_modes()) {
        const RunConfig config = tiny_run(mode);
        const GapReport report = measure_gap(cpu_operations(), config, initial_parameters(config.model, 2));
        const bool same_weights =
            trainer_numerics(mode, config.quantization).weights == rollout_numerics(mode, config.quantization).weights;
        INFO(name_of(mode));
        CHECK((report.weight.max == 0.0) == same_weights);
    }
}

TEST_CASE("Weight sync A, B, A gives the first A's bits", "[model][sync]") {
    const RunConfig config = tiny_run(Mode::quads);
    const TinyBatch batch(config);
    const Operations& op = cpu_operations();
    const Buffer<float> a(op, initial_parameters(config.model, 1)), b(op, initial_parameters(config.model, 2));
    RolloutEngine engine(op, config.model, rollout_numerics(config.mode, config.quantization), batch.tree);
    const auto scores = [&](const Buffer<float>& master) {
        engine.synchronize(master.data());
        return engine.score(batch.problems, batch.responses, 1.0f).logp;
    };
    const std::vector<float> first = scores(a), other = scores(b), again = scores(a);
    CHECK(same_bits(first, again));
    CHECK_FALSE(same_bits(first, other));
}

TEST_CASE("Scoring sampled tokens gives the log-probabilities they were sampled with", "[model][rollout]") {
    for (Mode mode : {Mode::bf16, Mode::fp8, Mode::naive, Mode::quads, Mode::quads_token}) {
        RunConfig config = tiny_run(mode);
        config.quantization.drift = Drift::nvfp4_kv_cache;
        const TinyBatch batch(config);
        const Buffer<float> master(cpu_operations(), initial_parameters(config.model, 1));
        RolloutEngine engine(cpu_operations(), config.model, rollout_numerics(mode, config.quantization), batch.tree);
        engine.synchronize(master.data());
        const Responses sampled = engine.generate(batch.problems, 0.7f, 11, 3);
        CHECK(same_bits(sampled.logp, engine.score(batch.problems, sampled.tokens, 0.7f).logp));
    }
}

TEST_CASE("An NVFP4 KV cache holds rounded rows, those of the pass only", "[model][kv cache]") {
    const RunConfig config = tiny_run(Mode::bf16);
    const int D = config.model.width;
    const TinyBatch batch(config);
    const Operations& op = cpu_operations();
    const Buffer<float> master(op, initial_parameters(config.model, 1));
    const std::vector<int> all_tokens = tree_tokens(batch.tree, batch.problems, batch.responses);
    std::vector<int> tokens, positions, rows;  // the prompts' rows, last prompt first
    for (int p = batch.tree.prompts - 1; p >= 0; --p) {
        for (int i = 0; i < batch.tree.prompt; ++i) {
            rows.push_back(p * batch.tree.rows_per_prompt() + i);
            positions.push_back(i);
            tokens.push_back(all_tokens[rows.back()]);
        }
    }
    const int T = static_cast<int>(rows.size());
    const Buffer<int> token_buffer(op, tokens), position_buffer(op, positions), row_buffer(op, rows);
    const auto cached = [&](KvFormat format) {
        Numerics numerics;
        numerics.kv_cache = format;
        EngineWeights weights(op, config.model, numerics);
        weights.synchronize(master.data());
        KvCache cache(op, config.model, batch.tree.rows());
        const std::vector<float> untouched(cache.k[0].size(), -7.0f);
        for (int l = 0; l < config.model.layers; ++l) cache.k[l].upload(untouched), cache.v[l].upload(untouched);
        Activations activations(op, config.model, T, false);
        const Pass pass{T, token_buffer.data(), position_buffer.data(), row_buffer.data(), batch.tree, nullptr};
        Model(op, config.model).forward(weights, pass, activations, cache, nullptr);
        return std::pair(cache.k[0].download(), cache.v[0].download());
    };
    // The first layer sees the same input whatever the cache, so its BF16 rows are what the NVFP4 ones are made of.
    const auto [k, v] = cached(KvFormat::bf16);
    const auto [k_rounded, v_rounded] = cached(KvFormat::nvfp4);
    const auto expected = [&](const Floats& exact) {
        const GroupRows groups({batch.tree.rows()});
        const Packed packed = literal::quantized(exact, groups, D, OuterScale::row);
        Floats result = exact;
        for (int row : rows) {
            for (int d = 0; d < D; ++d) result[row * D + d] = nearest_bf16(literal::value(packed, groups, row, d, D));
        }
        return result;
    };
    REQUIRE_FALSE(same_bits(k, k_rounded));
    REQUIRE_SAME_BITS(k_rounded, expected(k));
    REQUIRE_SAME_BITS(v_rounded, expected(v));
}

TEST_CASE("Coarser KV caches open wider gaps", "[model][kv cache][gap]") {
    const auto gap = [](Drift drift) {
        RunConfig config = tiny_run(Mode::bf16);
        config.quantization.drift = drift;
        return measure_gap(cpu_operations(), config, initial_parameters(config.model, 1)).num.mean;
    };
    CHECK(gap(Drift::bf16_residual) < gap(Drift::fp8_kv_cache));
    CHECK(gap(Drift::fp8_kv_cache) < gap(Drift::nvfp4_kv_cache));
}

TEST_CASE("Routing replay makes the trainer follow the rollout's experts", "[model][replay]") {
    const RunConfig config = tiny_run(Mode::naive);
    const TinyBatch batch(config);
    const Operations& op = cpu_operations();
    Learner learner(op, config.model, trainer_numerics(config.mode, config.quantization), batch.tree, config.optimizer);
    learner.load({initial_parameters(config.model, 1), {}, {}, 0});
    RolloutEngine engine(op, config.model, rollout_numerics(config.mode, config.quantization), batch.tree);
    engine.synchronize(learner.master());
    engine.score(batch.problems, batch.responses, 1.0f);
    learner.score(batch.problems, batch.responses, 1.0f, nullptr);
    CHECK(learner.router_flips(engine.trace()).fraction > 0.0);
    learner.score(batch.problems, batch.responses, 1.0f, engine.trace().experts.data());
    CHECK(learner.router_flips(engine.trace()).fraction == 0.0);
}
