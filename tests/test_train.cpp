// Runs as a user sees them: the same bytes whatever the threads, the table of operations and the interruptions.
#include "src/train.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "reference/parallel.hpp"
#include "src/files.hpp"
#include "src/pretrain.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"
#include "tests/tiny_run.hpp"

using namespace quads;

namespace {

const auto kSilent = [](const StepRecord&) {};

RunConfig tiny_run_with_base(Mode mode, const TemporaryFolder& folder) {
    RunConfig config = tiny_run(mode);
    config.base = folder.file("base.safetensors");
    save_checkpoint(config.base, {config, {initial_parameters(config.model, 4), {}, {}, 0}});
    return config;
}

// The log without the column that tells the time.
std::string without_seconds(const std::string& path) {
    std::istringstream lines(read_file(path));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
        const std::size_t at = line.find("\"seconds\"");
        if (at != std::string::npos) line.erase(at, line.find_first_of(",}", at) - at);
        text += line + "\n";
    }
    return text;
}

RunFiles files_of(const TemporaryFolder& folder, const std::string& name, bool resume = false) {
    return {folder.file(name + ".jsonl"), folder.file(name + ".safetensors"), resume};
}

struct Killed {};

}  // namespace

TEST_CASE("Threads and vectorised GEMMs change no byte of log and checkpoint", "[train][determinism]") {
    const TemporaryFolder folder;
    const Mode mode = GENERATE(Mode::bf16, Mode::fp8, Mode::naive, Mode::weight_only, Mode::symmetric, Mode::asymmetric,
                               Mode::residual, Mode::quads, Mode::quads_token);
    RunConfig config = tiny_run_with_base(mode, folder);
    config.steps = 3;
    config.quantization.drift = Drift::nvfp4_kv_cache;
    config.evaluation.decomposition_every = 2;
    set_threads(1);
    train(cpu_operations(), config, files_of(folder, "one"), kSilent);
    set_threads(2);
    train(cpu_operations(), config, files_of(folder, "two"), kSilent);
    train(reference_operations(), config, files_of(folder, "plain"), kSilent);
    set_threads(0);
    for (const char* other : {"two", "plain"}) {
        INFO(name_of(mode) << ", " << other);
        CHECK(without_seconds(folder.file("one.jsonl")) == without_seconds(folder.file(std::string(other) + ".jsonl")));
        CHECK(read_file(folder.file("one.safetensors")) == read_file(folder.file(std::string(other) + ".safetensors")));
    }
}

TEST_CASE("The committed run begins with the same bytes", "[train][determinism]") {
    const RunLog log = read_run_log("data/runs/reproduce/bf16_seed0.jsonl");
    Record expected = log.steps[0], found;
    train_without_files(cpu_operations(), config_from_json(log.config), 1,
                        [&](const StepRecord& step) { found = record_of(step); });
    for (Record* record : {&expected, &found}) {
        const auto seconds = [](const auto& entry) { return entry.first == "seconds"; };
        record->erase(std::remove_if(record->begin(), record->end(), seconds), record->end());
    }
    CHECK(to_json(found) == to_json(expected));
}

TEST_CASE("A sketch is pretrained and trained as a chain is", "[train]") {
    const TemporaryFolder folder;
    RunConfig config = tiny_run(Mode::quads);
    config.task = {6, TaskKind::sketch};
    config.heldout = "data/heldout_sketch.txt";
    config.base = folder.file("base.safetensors");
    config.steps = 2;
    config.pretrain.sequences = 32;
    config.pretrain.warmup_steps = 0;
    config.pretrain.target = 3e-6f;  // the untrained model draws one of about 100 right responses in 16^7
    std::vector<PretrainRecord> records;
    const TrainingState base =
        pretrain(cpu_operations(), config, [&](const PretrainRecord& r) { records.push_back(r); });
    CHECK(records.front().success < config.pretrain.target);
    CHECK(records.back().success >= config.pretrain.target);
    CHECK(records.back().loss < records.front().loss);
    save_checkpoint(config.base, {config, base});
    const std::vector<StepRecord> steps = train(cpu_operations(), config, files_of(folder, "sketch"), kSilent);
    CHECK(steps[1].heldout_pass1.has_value());
    const std::vector<StepRecord> again =
        train(cpu_operations(), config, files_of(folder, "sketch", true), kSilent);
    CHECK(record_of(again[1]) == record_of(steps[1]));
}

TEST_CASE("A killed run resumes to the bytes of an unbroken one", "[train][resume]") {
    const TemporaryFolder folder;
    RunConfig config = tiny_run_with_base(Mode::quads, folder);
    config.evaluation.decomposition_every = 2;
    train(cpu_operations(), config, files_of(folder, "whole"), kSilent);
    const int kill_at = GENERATE(0, 2, 3, 5);
    const auto kill = [&](const StepRecord& r) {
        if (r.step == kill_at) throw Killed();
    };
    CHECK_THROWS_AS(train(cpu_operations(), config, files_of(folder, "broken"), kill), Killed);
    // A kill in the middle of a write leaves half a line.
    std::ofstream(folder.file("broken.jsonl"), std::ios::app) << "{\"step\": 4, \"rew";
    train(cpu_operations(), config, files_of(folder, "broken", true), kSilent);
    CHECK(without_seconds(folder.file("whole.jsonl")) == without_seconds(folder.file("broken.jsonl")));
    CHECK(read_file(folder.file("whole.safetensors")) == read_file(folder.file("broken.safetensors")));
}

TEST_CASE("Taking the gap apart every few steps changes nothing else", "[train][gap]") {
    const TemporaryFolder folder;
    RunConfig config = tiny_run_with_base(Mode::naive, folder);
    const std::vector<StepRecord> plain = train(cpu_operations(), config, files_of(folder, "plain"), kSilent);
    config.evaluation.decomposition_every = 4;
    std::vector<StepRecord> measured = train(cpu_operations(), config, files_of(folder, "measured"), kSilent);
    for (int step = 0; step < config.steps; ++step) {
        INFO("step " << step);
        CHECK(measured[step].gap.has_value() == (step == 0 || step == 4 || step == 5));  // the last step too
        measured[step].gap.reset();
        measured[step].seconds = plain[step].seconds;
        CHECK(record_of(measured[step]) == record_of(plain[step]));
    }
}

TEST_CASE("A run with silenced tokens records their share, and starts like one without", "[train][grpo]") {
    const TemporaryFolder folder;
    RunConfig config = tiny_run_with_base(Mode::naive, folder);
    config.grpo.clip_high = config.grpo.clip_low = 0;  // every ratio but 1 is outside
    const std::vector<StepRecord> plain = train(cpu_operations(), config, files_of(folder, "plain"), kSilent);
    config.grpo.silenced = Silenced::outside;
    const std::vector<StepRecord> without = train(cpu_operations(), config, files_of(folder, "without"), kSilent);
    REQUIRE(without[0].silenced.has_value());
    CHECK_FALSE(plain[0].silenced.has_value());
    CHECK(without[0].silenced->tokens > 0);
    CHECK(without[0].silenced->weight > 0.5);
    CHECK(without[0].mismatch.gap_mean == plain[0].mismatch.gap_mean);
    CHECK(without[0].grad_norm < plain[0].grad_norm);
}

TEST_CASE("What would lose or mix runs is refused", "[train][bad input]") {
    const TemporaryFolder folder;
    RunConfig config = tiny_run_with_base(Mode::quads, folder);
    const RunFiles files = files_of(folder, "run");
    train(cpu_operations(), config, files, kSilent);
    const std::string log = read_file(files.log), checkpoint = read_file(files.checkpoint);
    const auto refused = [&](const RunConfig& changed, bool resume) {
        return refusal([&] { train(cpu_operations(), changed, files_of(folder, "run", resume), kSilent); });
    };
    CHECK(refused(config, false).find("exists already") != std::string::npos);
    RunConfig fewer = config;
    fewer.steps = 2;
    CHECK(refused(fewer, true).find("only 2 are asked for") != std::string::npos);
    RunConfig other = config;
    other.grpo.clip_high = 0.3f;
    CHECK(refused(other, true).find("another configuration") != std::string::npos);
    RunConfig larger = config;
    larger.model.layers = 3;
    CHECK(refused(larger, true).find("another model") != std::string::npos);
    CHECK(read_file(files.log) == log);
    CHECK(read_file(files.checkpoint) == checkpoint);
}

TEST_CASE("A base that is missing, truncated or foreign is refused before anything is written", "[train][bad input]") {
    const TemporaryFolder folder;
    RunConfig config = tiny_run_with_base(Mode::naive, folder);
    const std::string bytes = read_file(config.base);
    const auto refused = [&](const std::string& name, const std::string& content) {
        config.base = folder.file(name);
        if (!content.empty()) std::ofstream(config.base, std::ios::binary) << content;
        return refusal([&] { train(cpu_operations(), config, files_of(folder, "never"), kSilent); });
    };
    CHECK_FALSE(refused("missing", "").empty());
    CHECK_FALSE(refused("truncated", bytes.substr(0, bytes.size() - 100)).empty());
    CHECK_FALSE(refused("foreign", "not a safetensors file at all").empty());
    std::vector<float> parameters = initial_parameters(config.model, 4);
    parameters[ParameterLayout(config.model).head.offset + 5] = std::nanf("");
    config.base = folder.file("nan");
    save_checkpoint(config.base, {config, {parameters, {}, {}, 0}});
    const std::string sentence = refusal([&] { train(cpu_operations(), config, files_of(folder, "never"), kSilent); });
    CHECK(sentence.find("'head'") != std::string::npos);
    CHECK(sentence.find("element 5") != std::string::npos);
    CHECK_FALSE(std::ifstream(folder.file("never.jsonl")).good());
    CHECK_FALSE(std::ifstream(folder.file("never.safetensors")).good());
}

TEST_CASE("Records survive the log", "[train]") {
    StepRecord step;
    step.step = 7;
    step.mismatch.gap_max = 0.125;
    step.tokens = 448;
    CHECK(record_of(step_of(record_of(step))) == record_of(step));
    step.heldout_pass1 = 0.5;
    CHECK(step_of(record_of(step)).heldout_pass1 == 0.5);
    CHECK_THROWS_AS(step_of({{"step", 1.0}}), Error);
    step.silenced = SilencedShare{0.25, 0.5};
    CHECK(record_of(step_of(record_of(step))) == record_of(step));
    CHECK(step_of(record_of(step)).silenced->weight == 0.5);
    step.gap = GapReport{};
    step.gap->act = {0.25, 2.0};
    step.gap->unlikely_gap = 0.5;
    step.gap->router_flips = {0.25, {0.125, 0.375}};
    step.gap->code_flips = {0.5, {0.25, 0.75}};
    CHECK(record_of(step_of(record_of(step))) == record_of(step));
    CHECK(step_of(record_of(step)).gap->code_flips.by_layer == std::vector<double>{0.25, 0.75});
    Record lacking = record_of(step);
    lacking.pop_back();
    CHECK_THROWS_AS(step_of(lacking), Error);
}

TEST_CASE("The learning rate warms up and decays", "[train]") {
    OptimizerConfig optimizer;
    optimizer.learning_rate = 1.0f;
    CHECK(learning_rate_at(optimizer, 0, 100) == Approx(0.1));
    CHECK(learning_rate_at(optimizer, 9, 100) == Approx(0.91));
    CHECK(learning_rate_at(optimizer, 50, 100) == Approx(0.5));
    optimizer.decay = false;
    CHECK(learning_rate_at(optimizer, 50, 100) == 1.0f);
}
