// The configuration: round trip, strictness, suggestions and ranges.
#include <filesystem>
#include <fstream>
#include <limits>

#include "reference/check.hpp"
#include "src/config.hpp"
#include "src/json_lines.hpp"
#include "src/parameters.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

using namespace quads;

namespace {

RunConfig with(const std::string& assignment) { return load_config("", {assignment}); }

}  // namespace

TEST_CASE("a configuration survives JSON and back", "[config]") {
    RunConfig config;
    config.mode = Mode::asymmetric;
    config.seed = 4294967295u;
    config.grpo.clip_high = 0.1f;
    config.grpo.correction = Correction::tis;
    config.grpo.routing_replay = true;
    config.quantization.activation_outer_scale = OuterScale::group;
    config.quantization.drift = Drift::fp8_kv_cache;
    config.optimizer.epsilon = 1e-20f;
    config.base = "a \"quoted\" \\ path\n";
    const std::string json = to_json(config);
    const RunConfig back = config_from_json(json);
    CHECK(to_json(back) == json);
    CHECK(back.mode == Mode::asymmetric);
    CHECK(back.seed == 4294967295u);
    CHECK(back.grpo.clip_high == 0.1f);
    CHECK(back.quantization.activation_outer_scale == OuterScale::group);
    CHECK(back.optimizer.epsilon == 1e-20f);
    CHECK(back.base == config.base);
    CHECK(json.find('\n') == std::string::npos);
}

TEST_CASE("the committed configurations are valid and reproduce.json spells out the defaults", "[config]") {
    CHECK(to_json(load_config("data/configs/reproduce.json", {})) == to_json(RunConfig{}));
    CHECK(load_config("data/configs/all_linears.json", {}).quantization.scope == Scope::all_linears);
    CHECK_NOTHROW(load_config("data/configs/demo.json", {}));
    CHECK(load_config("data/configs/sketch.json", {}).task.kind == TaskKind::sketch);
    const RunConfig large = load_config("data/configs/large.json", {}), small;
    CHECK(ParameterLayout(large.model).size > 10 * ParameterLayout(small.model).size);
}

TEST_CASE("logs from before there was a second task keep their first line", "[config]") {
    const std::string before = read_run_log("data/runs/reproduce/quads_seed0.jsonl").config;
    CHECK(before.find("kind") == std::string::npos);
    CHECK(to_json(config_from_json(before)) == before);
    CHECK(config_from_json(before).task.kind == TaskKind::chain);
    const std::string sketch = to_json(load_config("data/configs/sketch.json", {}));
    CHECK(to_json(config_from_json(sketch)) == sketch);
    CHECK(config_from_json(sketch).task.kind == TaskKind::sketch);
    CHECK(refusal([] { with("task.kind=sketsh"); }).find("nearest is sketch") != std::string::npos);
}

TEST_CASE("a key younger than the committed logs is written only where it is set", "[config]") {
    CHECK(to_json(RunConfig{}).find("decomposition_every") == std::string::npos);
    const std::string json = to_json(with("evaluation.decomposition_every=20"));
    CHECK(json.find("\"responses\":4,\"decomposition_every\":20}") != std::string::npos);
    CHECK(config_from_json(json).evaluation.decomposition_every == 20);
    CHECK(to_json(RunConfig{}).find("silenced") == std::string::npos);
    const std::string outside = to_json(with("grpo.silenced=outside"));
    CHECK(outside.find("\"routing_replay\":false,\"silenced\":\"outside\"}") != std::string::npos);
    CHECK(config_from_json(outside).grpo.silenced == Silenced::outside);
    int logs = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator("data/runs")) {
        if (entry.path().extension() != ".jsonl") continue;
        std::ifstream log(entry.path());
        std::string line;
        REQUIRE(std::getline(log, line));
        INFO(entry.path());
        CHECK(to_json(config_from_json(line)) == line);
        ++logs;
    }
    CHECK(logs >= 45);
}

TEST_CASE("assignments apply in order after the file", "[config]") {
    const RunConfig config = load_config("data/configs/all_linears.json",
                                         {"quantization.scope=experts", "grpo.clip_high=0.3", "grpo.clip_high=0.4",
                                          "mode=naive", "optimizer.decay=false", "base=here.safetensors"});
    CHECK(config.quantization.scope == Scope::experts);
    CHECK(config.grpo.clip_high == 0.4f);
    CHECK(config.mode == Mode::naive);
    CHECK(config.optimizer.decay == false);
    CHECK(config.base == "here.safetensors");
}

TEST_CASE("unknown keys and names are refused with the nearest valid one", "[config]") {
    CHECK(refusal([] { with("grpo.clip_hihg=0.3"); }).find("'grpo.clip_high'") != std::string::npos);
    CHECK(refusal([] { with("clip_high=0.3"); }).find("'grpo.clip_high'") != std::string::npos);
    CHECK(refusal([] { with("grop.clip_high=0.3"); }).find("'grpo'") != std::string::npos);
    CHECK(refusal([] { with("step=3"); }).find("'steps'") != std::string::npos);
    CHECK(refusal([] { with("mode=quad"); }).find("nearest is quads ") != std::string::npos);
    CHECK(refusal([] { with("quantization.drift=bf16"); }).find("bf16_residual") != std::string::npos);
    const std::string classes = refusal([] { with("grpo.silenced=negative"); });
    CHECK(classes.find("'negative'") != std::string::npos);
    CHECK(classes.find("(valid: none, negative_unlikely, negative_likely, negative_above, positive_below, outside)") !=
          std::string::npos);
    CHECK(refusal([] { mode_from_name("niave"); }).find("naive") != std::string::npos);
}

TEST_CASE("wrong types are refused", "[config]") {
    for (const char* assignment : {"steps=many", "steps=1.5", "steps=true", "steps=null", "grpo.clip_low=high",
                                   "grpo.routing_replay=1", "grpo=3", "base=3", "seed=-1", "seed=4294967296",
                                   "steps=99999999999999999999", "mode=3", "grpo", "=3", "grpo.=3"}) {
        INFO(assignment);
        CHECK(!refusal([&] { with(assignment); }).empty());
    }
}

TEST_CASE("values out of range are refused", "[config]") {
    for (const char* assignment :
         {"steps=0", "model.vocabulary=15", "model.width=66", "model.active_experts=9", "model.positions=22",
          "task.digits=1", "quantization.residual_ratio=1.01", "quantization.residual_ratio=-0.01", "grpo.group=0",
          "grpo.temperature=0", "optimizer.beta2=1", "grpo.prompts=60000", "evaluation.every=0", "base=\"\""}) {
        INFO(assignment);
        CHECK(!refusal([&] { with(assignment); }).empty());
    }
    for (const char* assignment : {"steps=1", "model.positions=23", "quantization.residual_ratio=0",
                                   "quantization.residual_ratio=1", "grpo.group=1", "optimizer.beta2=0.999999"}) {
        INFO(assignment);
        CHECK_NOTHROW(with(assignment));
    }
    RunConfig config;
    config.grpo.temperature = std::numeric_limits<float>::quiet_NaN();
    CHECK(!refusal([&] { validate(config); }).empty());
}

TEST_CASE("files that are not valid JSON are refused with the line", "[config]") {
    TemporaryFolder folder;
    const std::string path = folder.file("config.json");
    std::ofstream(path) << "{\n  // a comment\n  \"steps\": 3,\n}\n";
    CHECK(refusal([&] { load_config(path, {}); }).find("line 4") != std::string::npos);
    std::ofstream(path) << "{\n  // a comment\n  \"steps\": 3\n}\n";
    CHECK(load_config(path, {}).steps == 3);
    std::ofstream(path) << "[1, 2]";
    CHECK(!refusal([&] { load_config(path, {}); }).empty());
    CHECK(refusal([&] { load_config(folder.file("missing.json"), {}); }).find("missing.json") != std::string::npos);
    CHECK(!refusal([&] { load_config(folder.path(), {}); }).empty());
}
