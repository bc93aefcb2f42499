// Everything a run depends on, and its JSON form. A run's log begins with its resolved configuration.
//
// Keys are the members' names, nested as the structs are. Files may leave keys out (the defaults below are the regime
// of the committed results) and may hold // comments; unknown keys and names are errors that suggest the nearest valid
// one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/attention.hpp"
#include "reference/nvfp4.hpp"

namespace quads {

struct ModelConfig {
    int vocabulary = 16;     // V
    int width = 64;          // D, a multiple of heads
    int layers = 8;          // L
    int heads = 4;           // H
    int experts = 8;         // E
    int active_experts = 2;  // S
    int expert_hidden = 64;  // F
    int positions = 24;      // longest sequence, prompt and response
};

enum class TaskKind { chain, sketch };

struct TaskConfig {
    int digits = 8;                    // of the program behind a problem, see src/task.hpp
    TaskKind kind = TaskKind::chain;
};

// The numeric path of the two engines; one row of the table of modes.
enum class Mode { bf16, fp8, naive, weight_only, symmetric, asymmetric, residual, quads, quads_token };

enum class Scope {
    experts,      // only the routed experts' matrices are quantised (the default of the regime)
    all_linears,  // attention projections too
};

enum class Drift {
    none,            // the rollout engine computes exactly what the trainer computes
    bf16_residual,   // the rollout keeps its residual stream in BF16
    fp8_kv_cache,    // and its KV cache in FP8
    nvfp4_kv_cache,  // or its KV cache in NVFP4
};

struct QuantizationConfig {
    Scope scope = Scope::experts;
    OuterScale activation_outer_scale = OuterScale::row;  // "token" or "tensor"
    float residual_ratio = 0.5f;                          // share of channels RAC compensates
    // RAC's channels under the modes residual and quads; quads_token always selects by token.
    ResidualSelection residual_selection = ResidualSelection::batch;
    Drift drift = Drift::bf16_residual;
};

// What the importance ratio corrects for.
enum class Correction {
    rollout,  // ratio = trainer / rollout log-probabilities: the engine that sampled is the denominator
    none,     // ratio = trainer / (detached) trainer: 1 in value, the mismatch is ignored
    tis,      // as none, times min(trainer / rollout, tis_cap), detached: truncated importance sampling
};

// Tokens that get no policy gradient, to see what they do to a run. A is the advantage; a token is unlikely where the
// trainer gives it a probability below 0.1 (kUnlikelyLogp in src/grpo.hpp).
enum class Silenced {
    none,
    negative_unlikely,  // A < 0, unlikely
    negative_likely,    // A < 0, not unlikely
    negative_above,     // A < 0, ratio > 1 + clip_high: the branch that the objective's minimum leaves unbounded
    positive_below,     // A > 0, ratio < 1 - clip_low: the other branch outside the range that has a gradient
    outside,            // A != 0, ratio outside the clip range: these two branches, and what clipping silences anyway
};

struct GrpoConfig {
    int prompts = 64;          // P, per step
    int group = 8;             // G, responses per prompt
    float temperature = 1.0f;  // on both sides of the ratio
    float clip_low = 0.2f;
    float clip_high = 0.2f;
    float advantage_epsilon = 1e-4f;  // (reward - mean) / (std + epsilon), unbiased std
    float balance = 1e-3f;            // weight of the load-balance loss, averaged over layers
    Correction correction = Correction::rollout;
    float tis_cap = 2.0f;
    bool routing_replay = false;  // the trainer uses the rollout's expert choice
    Silenced silenced = Silenced::none;
};

struct OptimizerConfig {
    float learning_rate = 4e-4f;
    int warmup_steps = 10;  // linear, then linear decay to 0 over `steps`
    bool decay = true;
    float beta1 = 0.9f;
    float beta2 = 0.95f;
    float epsilon = 1e-8f;
    float weight_decay = 0.0f;
    float max_gradient_norm = 1.0f;
};

struct EvaluationConfig {
    int every = 60;     // steps between held-out evaluations; the last step is always evaluated
    int responses = 4;  // sampled at temperature 1 per held-out prompt; pass@1 is their mean reward
    int decomposition_every = 0;  // steps between gap decompositions, the first and last steps included; 0: never
};

struct PretrainConfig {
    int sequences = 512;  // random problems with a right response per step
    float learning_rate = 2e-3f;
    int warmup_steps = 50;
    int max_steps = 600;
    float target = 0.45f;  // stop when the mean probability of a right response reaches this
    float balance = 1e-2f;
};

struct RunConfig {
    Mode mode = Mode::quads;
    std::uint32_t seed = 0;
    int steps = 420;
    int checkpoint_every = 20;
    std::string base = "data/base.safetensors";
    std::string heldout = "data/heldout.txt";
    ModelConfig model;
    TaskConfig task;
    QuantizationConfig quantization;
    GrpoConfig grpo;
    OptimizerConfig optimizer;
    EvaluationConfig evaluation;
    PretrainConfig pretrain;
};

// Names as they appear in JSON and on the command line; Error with the nearest valid name for anything else.
std::string name_of(Mode mode);
Mode mode_from_name(const std::string& name);
const std::vector<Mode>& all_modes();

// Reads a JSON file (empty path: the defaults), then applies assignments such as "grpo.clip_high=0.3" in order, then
// checks the whole. Error for unreadable or malformed files, unknown keys, wrong types and values out of range.
RunConfig load_config(const std::string& path, const std::vector<std::string>& assignments);

// Error where a value is out of range or two values do not fit together.
void validate(const RunConfig& config);

// The resolved configuration as one line of JSON, and back. A key younger than the committed logs is written only where
// it is set: an older log then still begins with the configuration that makes it again.
std::string to_json(const RunConfig& config);
RunConfig config_from_json(const std::string& json);

}  // namespace quads
