// The options of one command: declared once, which serves reading, --help and the suggestion for a misspelt one.
//
//   const Arguments arguments(raw, {"train", "Trains one run.", "", {
//       {"--seed", "N", "seed of every random number (default 0)"},
//       {"--resume", "", "continues from --checkpoint"},
//       {"--set", "KEY=VALUE", "changes one key of the configuration", kRepeated},
//   }});
//   const std::int64_t seed = arguments.integer("--seed").value_or(0);
//   if (arguments.flag("--resume")) ...
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace quads {

constexpr bool kRepeated = true;

struct Option {
    std::string name;       // "--seed"
    std::string value;      // placeholder of its value, "" for a flag
    std::string help;       // may hold line breaks
    bool repeated = false;  // may be given several times
};

struct Command {
    std::string name;         // "train"
    std::string summary;      // the help text above the options; may have several paragraphs
    std::string positionals;  // as shown in the usage line, "" if the command takes none
    std::vector<Option> options;
};

// Thrown where --help (or -h) is among the arguments; the program prints the text and exits with 0.
struct Help {
    std::string text;
};

class Arguments {
public:
    // Accepts "--name value" and "--name=value". Error for an unknown option (naming the nearest one), a missing or
    // unexpected value, an option given twice that is not `repeated`, and positionals where there are none to give.
    Arguments(const std::vector<std::string>& raw, Command command);

    bool declares(const std::string& name) const;  // whether the command has this option
    bool flag(const std::string& name) const;
    std::optional<std::string> value(const std::string& name) const;
    std::vector<std::string> values(const std::string& name) const;  // in the order given
    std::string required(const std::string& name) const;             // Error where it is missing
    // The names between the commas of the value, or of `otherwise` where it is not given. Error for an empty list.
    std::vector<std::string> list(const std::string& name, const std::string& otherwise) const;

    // Error unless the value is a whole number in lowest .. highest, or a finite number.
    std::optional<std::int64_t> integer(const std::string& name, std::int64_t lowest = 0,
                                        std::int64_t highest = std::numeric_limits<std::int32_t>::max()) const;
    std::optional<double> number(const std::string& name) const;

    const std::vector<std::string>& positionals() const { return positionals_; }

private:
    const Option& declared(const std::string& name) const;

    Command command_;
    std::vector<std::pair<std::string, std::string>> given_;  // option and value, in the order given
    std::vector<std::string> positionals_;
};

}  // namespace quads
