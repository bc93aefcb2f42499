#include "src/config.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "reference/check.hpp"
#include "src/json_text.hpp"
#include "src/nearest.hpp"
#include "src/task.hpp"

namespace quads {
namespace {

using nlohmann::json;

// Names of every enumeration, in the order of its values.
const std::vector<std::string>& names_of(Mode) {
    static const std::vector<std::string> names{"bf16",       "fp8",      "naive", "weight_only", "symmetric",
                                                "asymmetric", "residual", "quads", "quads_token"};
    return names;
}
const std::vector<std::string>& names_of(TaskKind) {
    static const std::vector<std::string> names{"chain", "sketch"};
    return names;
}
const std::vector<std::string>& names_of(Scope) {
    static const std::vector<std::string> names{"experts", "all_linears"};
    return names;
}
const std::vector<std::string>& names_of(OuterScale) {
    static const std::vector<std::string> names{"token", "tensor"};
    return names;
}
const std::vector<std::string>& names_of(ResidualSelection) {
    static const std::vector<std::string> names{"batch", "token", "random"};
    return names;
}
const std::vector<std::string>& names_of(Drift) {
    static const std::vector<std::string> names{"none", "bf16_residual", "fp8_kv_cache", "nvfp4_kv_cache"};
    return names;
}
const std::vector<std::string>& names_of(Correction) {
    static const std::vector<std::string> names{"rollout", "none", "tis"};
    return names;
}

const std::vector<std::string>& names_of(Silenced) {
    static const std::vector<std::string> names{"none",           "negative_unlikely", "negative_likely",
                                                "negative_above", "positive_below",    "outside"};
    return names;
}

template <typename Enum>
Enum enum_from_name(const std::string& key, const std::string& name) {
    const std::vector<std::string>& names = names_of(Enum{});
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) return static_cast<Enum>(i);
    }
    std::string list;
    for (const std::string& valid : names) list += (list.empty() ? "" : ", ") + valid;
    fail("there is no ", key, " '", name, "'; the nearest is ", nearest_name(name, names), " (valid: ", list, ").");
}

// The one list of keys, with the range of every number: visit(name, member, lowest, highest).
template <typename Visit>
void fields(ModelConfig& c, Visit& visit) {
    visit("vocabulary", c.vocabulary, 16, 65536);
    visit("width", c.width, 1, 8192);
    visit("layers", c.layers, 1, 128);
    visit("heads", c.heads, 1, 128);
    visit("experts", c.experts, 1, 256);
    visit("active_experts", c.active_experts, 1, 256);
    visit("expert_hidden", c.expert_hidden, 1, 32768);
    visit("positions", c.positions, 1, 65536);
}
template <typename Visit>
void fields(TaskConfig& c, Visit& visit) {
    visit("digits", c.digits, 2, 1000);
    visit("kind", c.kind);
}
template <typename Visit>
void fields(QuantizationConfig& c, Visit& visit) {
    visit("scope", c.scope);
    visit("activation_outer_scale", c.activation_outer_scale);
    visit("residual_ratio", c.residual_ratio, 0, 1);
    visit("residual_selection", c.residual_selection);
    visit("drift", c.drift);
}
template <typename Visit>
void fields(GrpoConfig& c, Visit& visit) {
    visit("prompts", c.prompts, 1, 65536);
    visit("group", c.group, 1, 4096);
    visit("temperature", c.temperature, 0.01, 100);
    visit("clip_low", c.clip_low, 0, 1);
    visit("clip_high", c.clip_high, 0, 1000);
    visit("advantage_epsilon", c.advantage_epsilon, 0, 1);
    visit("balance", c.balance, 0, 100);
    visit("correction", c.correction);
    visit("tis_cap", c.tis_cap, 0, 1e6);
    visit("routing_replay", c.routing_replay);
    visit("silenced", c.silenced);
}
template <typename Visit>
void fields(OptimizerConfig& c, Visit& visit) {
    visit("learning_rate", c.learning_rate, 0, 10);
    visit("warmup_steps", c.warmup_steps, 0, 1e6);
    visit("decay", c.decay);
    visit("beta1", c.beta1, 0, 0.999999);
    visit("beta2", c.beta2, 0, 0.999999);
    visit("epsilon", c.epsilon, 1e-30, 1);
    visit("weight_decay", c.weight_decay, 0, 100);
    visit("max_gradient_norm", c.max_gradient_norm, 1e-6, 1e6);
}
template <typename Visit>
void fields(EvaluationConfig& c, Visit& visit) {
    visit("every", c.every, 1, 1e6);
    visit("responses", c.responses, 1, 1024);
    visit("decomposition_every", c.decomposition_every, 0, 1e6);
}
template <typename Visit>
void fields(PretrainConfig& c, Visit& visit) {
    visit("sequences", c.sequences, 1, 65536);
    visit("learning_rate", c.learning_rate, 0, 10);
    visit("warmup_steps", c.warmup_steps, 0, 1e6);
    visit("max_steps", c.max_steps, 1, 1e6);
    visit("target", c.target, 0, 1);
    visit("balance", c.balance, 0, 100);
}
template <typename Visit>
void fields(RunConfig& c, Visit& visit) {
    visit("mode", c.mode);
    visit("seed", c.seed, 0, std::numeric_limits<std::uint32_t>::max());
    visit("steps", c.steps, 1, 1e6);
    visit("checkpoint_every", c.checkpoint_every, 1, 1e6);
    visit("base", c.base);
    visit("heldout", c.heldout);
    visit("model", c.model);
    visit("task", c.task);
    visit("quantization", c.quantization);
    visit("grpo", c.grpo);
    visit("optimizer", c.optimizer);
    visit("evaluation", c.evaluation);
    visit("pretrain", c.pretrain);
}

template <typename T>
constexpr bool is_struct = std::is_class_v<T> && !std::is_same_v<T, std::string>;

std::string joined(const std::string& prefix, const std::string& name) {
    return prefix.empty() ? name : prefix + "." + name;
}

// Every key with its struct: ("grpo.", "group").
struct Collect {
    std::string prefix;
    std::vector<std::pair<std::string, std::string>> keys;

    template <typename T>
    void operator()(const char* name, T& member, double = 0, double = 0) {
        keys.emplace_back(prefix, name);
        if constexpr (is_struct<T>) {
            Collect inner{joined(prefix, name), {}};
            fields(member, inner);
            keys.insert(keys.end(), inner.keys.begin(), inner.keys.end());
        }
    }
};

// Suggests a key of the same struct where one is close, else the closest of all, for keys put in the wrong struct.
[[noreturn]] void fail_unknown(const std::string& prefix, const std::string& key) {
    RunConfig config;
    Collect all;
    fields(config, all);
    std::vector<std::string> here, everywhere;
    for (const auto& [of, name] : all.keys) {
        everywhere.push_back(name);
        if (of == prefix) here.push_back(name);
    }
    std::string nearest = nearest_name(key, here);
    std::string found = joined(prefix, nearest);
    if (nearest.empty() || edit_distance(key, nearest) > 2) {
        nearest = nearest_name(key, everywhere);
        for (const auto& [of, name] : all.keys) {
            if (name == nearest) found = joined(of, name);
        }
    }
    fail("the configuration has no key '", joined(prefix, key), "'; the nearest is '", found, "'.");
}

// Sets the members that the JSON object names, and marks the names it has used.
struct Read {
    const json& object;
    std::string prefix;
    std::vector<std::string> used;

    template <typename T>
    void operator()(const char* name, T& member, double = 0, double = 0) {
        const auto entry = object.find(name);
        if (entry == object.end()) return;
        used.push_back(name);
        const std::string key = joined(prefix, name);
        const auto expect = [&](bool condition, const char* what) {
            check(condition, "'", key, "' expects ", what, ", found ", entry->dump(), ".");
        };
        if constexpr (is_struct<T>) {
            read(*entry, key, member);
        } else if constexpr (std::is_same_v<T, bool>) {
            expect(entry->is_boolean(), "true or false");
            member = entry->template get<bool>();
        } else if constexpr (std::is_same_v<T, std::string>) {
            expect(entry->is_string(), "a text in quotes");
            member = entry->template get<std::string>();
        } else if constexpr (std::is_enum_v<T>) {
            expect(entry->is_string(), "a name in quotes");
            member = enum_from_name<T>(key, entry->template get<std::string>());
        } else if constexpr (std::is_integral_v<T>) {
            expect(entry->is_number_integer(), "a whole number");
            const double value = entry->template get<double>();
            expect(value >= static_cast<double>(std::numeric_limits<T>::min()) &&
                       value <= static_cast<double>(std::numeric_limits<T>::max()),
                   "a smaller whole number");
            member = entry->template get<T>();
        } else {
            expect(entry->is_number(), "a number");
            member = static_cast<T>(entry->template get<double>());
        }
    }

    template <typename Config>
    static void read(const json& object, const std::string& prefix, Config& config) {
        check(object.is_object(), "'", prefix.empty() ? "the configuration" : prefix,
              "' expects an object { ... } of keys, found ", object.dump(), ".");
        Read reader{object, prefix, {}};
        fields(config, reader);
        for (const auto& item : object.items()) {
            bool known = false;
            for (const std::string& name : reader.used) known = known || name == item.key();
            if (!known) fail_unknown(prefix, item.key());
        }
    }
};

// Keys that were added after the committed logs and base; their defaults are 0, false or the first name.
bool is_younger(const std::string& name) {
    return name == "kind" || name == "decomposition_every" || name == "silenced";
}

struct Write {
    std::string text;

    template <typename T>
    void operator()(const char* name, T& member, double = 0, double = 0) {
        if constexpr (!is_struct<T>) {
            if (is_younger(name) && member == T{}) return;
        }
        text += (text.empty() ? "" : ",") + json_string(name) + ":";
        if constexpr (is_struct<T>) {
            Write inner;
            fields(member, inner);
            text += "{" + inner.text + "}";
        } else if constexpr (std::is_same_v<T, bool>) {
            text += member ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::string>) {
            text += json_string(member);
        } else if constexpr (std::is_enum_v<T>) {
            text += json_string(names_of(member)[static_cast<std::size_t>(member)]);
        } else if constexpr (std::is_integral_v<T>) {
            text += std::to_string(member);
        } else {
            text += json_number(member);
        }
    }
};

struct CheckRange {
    std::string prefix;

    template <typename T>
    void operator()(const char* name, T& member, double lowest = 0, double highest = 0) {
        if constexpr (is_struct<T>) {
            CheckRange inner{joined(prefix, name)};
            fields(member, inner);
        } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
            // Bounds such as 0.01 are meant as the nearest value of the member's type.
            check(member >= static_cast<T>(lowest) && member <= static_cast<T>(highest), "'", joined(prefix, name),
                  "' is ", member, ", expected a number from ", json_number(lowest), " to ", json_number(highest), ".");
        }
    }
};

json parse(const std::string& text, const std::string& source) {
    try {
        return json::parse(text, nullptr, true, true);  // with exceptions, ignoring comments
    } catch (const json::parse_error& error) {
        const std::size_t end = std::min(error.byte, text.size());
        const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
        fail(source, " is not valid JSON near line ", line, "; check commas, quotes and brackets there.");
    }
}

// "grpo.clip_high=0.3" sets one key. Text that is not JSON is taken as a string, so that names need no quotes.
void assign(RunConfig& config, const std::string& assignment) {
    const std::size_t equals = assignment.find('=');
    check(equals != std::string::npos && equals > 0, "--set expects KEY=VALUE such as grpo.clip_high=0.3, found '",
          assignment, "'.");
    const std::string text = assignment.substr(equals + 1);
    json value = json::parse(text, nullptr, false);
    if (value.is_discarded()) value = text;
    std::string path = assignment.substr(0, equals);
    for (std::size_t dot = path.rfind('.'); dot != std::string::npos; dot = path.rfind('.')) {
        value = json{{path.substr(dot + 1), value}};
        path.resize(dot);
    }
    Read::read(json{{path, value}}, "", config);
}

}  // namespace

std::string name_of(Mode mode) { return names_of(mode)[static_cast<std::size_t>(mode)]; }

Mode mode_from_name(const std::string& name) { return enum_from_name<Mode>("mode", name); }

const std::vector<Mode>& all_modes() {
    static const std::vector<Mode> modes = [] {
        std::vector<Mode> list;
        for (const std::string& name : names_of(Mode{})) list.push_back(mode_from_name(name));
        return list;
    }();
    return modes;
}

RunConfig load_config(const std::string& path, const std::vector<std::string>& assignments) {
    RunConfig config;
    if (!path.empty()) {
        std::ifstream file(path);
        std::ostringstream text;
        check(file.good() && text << file.rdbuf(), "cannot read the configuration ", path,
              "; check that the file exists, or leave --config out for the defaults.");
        Read::read(parse(text.str(), path), "", config);
    }
    for (const std::string& assignment : assignments) assign(config, assignment);
    validate(config);
    return config;
}

void validate(const RunConfig& config) {
    RunConfig copy = config;  // the list of fields is written for members that may change
    CheckRange ranges;
    fields(copy, ranges);

    const ModelConfig& model = config.model;
    check(model.width % model.heads == 0, "'model.width' is ", model.width,
          ", expected a multiple of 'model.heads' = ", model.heads, ".");
    check(model.active_experts <= model.experts, "'model.active_experts' is ", model.active_experts,
          ", expected at most 'model.experts' = ", model.experts, ".");
    const int prompt = prompt_tokens(config.task), response = response_tokens(config.task);
    const int length = prompt + response;
    check(model.positions >= length, "'model.positions' is ", model.positions, ", expected at least ", length,
          " for ", config.task.digits, " digits (prompt ", prompt, ", response ", response, ").");
    const std::int64_t rows = std::int64_t{config.grpo.prompts} * config.grpo.group * length;
    check(rows <= 1 << 22, "'grpo.prompts' * 'grpo.group' responses of ", length, " tokens are ", rows,
          " rows, expected at most ", 1 << 22, "; make the batch smaller.");
    check(!config.base.empty(), "'base' is empty, expected the path of the base checkpoint.");
    check(!config.heldout.empty(), "'heldout' is empty, expected the path of the held-out prompts.");
}

std::string to_json(const RunConfig& config) {
    RunConfig copy = config;
    Write writer;
    fields(copy, writer);
    return "{" + writer.text + "}";
}

RunConfig config_from_json(const std::string& text) {
    RunConfig config;
    Read::read(parse(text, "the recorded configuration"), "", config);
    validate(config);
    return config;
}

}  // namespace quads
