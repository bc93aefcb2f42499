#include "src/commands/arguments.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "reference/check.hpp"
#include "src/nearest.hpp"

namespace quads {
namespace {

constexpr std::size_t kHelpColumn = 28;

std::string help_text(const Command& command) {
    std::ostringstream text;
    text << "usage: quads " << command.name << (command.positionals.empty() ? "" : " ") << command.positionals
         << (command.options.empty() ? "" : " [options]") << "\n\n"
         << command.summary << "\n\noptions:\n";
    std::vector<Option> options = command.options;
    options.push_back({"--help", "", "this text"});
    for (const Option& option : options) {
        std::string left = "  " + option.name + (option.value.empty() ? "" : " " + option.value);
        left.resize(std::max(left.size() + 2, kHelpColumn), ' ');
        text << left;
        for (const char c : option.help) {
            text << c;
            if (c == '\n') text << std::string(kHelpColumn, ' ');
        }
        text << (option.repeated ? " (may be repeated)\n" : "\n");
    }
    return text.str();
}

}  // namespace

Arguments::Arguments(const std::vector<std::string>& raw, Command command) : command_(std::move(command)) {
    for (std::size_t i = 0; i < raw.size(); ++i) {
        if (raw[i] == "--help" || raw[i] == "-h") throw Help{help_text(command_)};
    }
    for (std::size_t i = 0; i < raw.size(); ++i) {
        if (raw[i].size() < 2 || raw[i][0] != '-') {
            check(!command_.positionals.empty(), "quads ", command_.name, " takes options only, found '", raw[i],
                  "'; see quads ", command_.name, " --help.");
            positionals_.push_back(raw[i]);
            continue;
        }
        const std::size_t equals = raw[i].find('=');
        const std::string name = raw[i].substr(0, equals);
        std::vector<std::string> names{"--help"};
        for (const Option& option : command_.options) names.push_back(option.name);
        check(std::count(names.begin(), names.end(), name) > 0, "quads ", command_.name, " has no option ", name,
              "; the nearest is ", nearest_name(name, names), ".");
        const Option& option = declared(name);
        check(option.repeated || !(option.value.empty() ? flag(name) : value(name).has_value()), name,
              " is given twice; give it once.");
        if (option.value.empty()) {
            check(equals == std::string::npos, name, " takes no value, found '", raw[i], "'.");
            given_.emplace_back(name, "");
        } else if (equals != std::string::npos) {
            given_.emplace_back(name, raw[i].substr(equals + 1));
        } else {
            check(i + 1 < raw.size() && raw[i + 1].compare(0, 2, "--") != 0, name, " needs a value: ", name, " ",
                  option.value, ".");
            given_.emplace_back(name, raw[++i]);
        }
    }
}

const Option& Arguments::declared(const std::string& name) const {
    for (const Option& option : command_.options) {
        if (option.name == name) return option;
    }
    throw std::logic_error("option " + name + " is read but not declared by quads " + command_.name);
}

bool Arguments::declares(const std::string& name) const {
    for (const Option& option : command_.options) {
        if (option.name == name) return true;
    }
    return false;
}

bool Arguments::flag(const std::string& name) const {
    declared(name);
    return std::any_of(given_.begin(), given_.end(), [&](const auto& pair) { return pair.first == name; });
}

std::vector<std::string> Arguments::values(const std::string& name) const {
    declared(name);
    std::vector<std::string> found;
    for (const auto& [option, value] : given_) {
        if (option == name) found.push_back(value);
    }
    return found;
}

std::optional<std::string> Arguments::value(const std::string& name) const {
    const std::vector<std::string> found = values(name);
    return found.empty() ? std::nullopt : std::optional<std::string>(found.back());
}

std::string Arguments::required(const std::string& name) const {
    const std::optional<std::string> found = value(name);
    check(found.has_value(), "quads ", command_.name, " needs ", name, " ", declared(name).value, "; see quads ",
          command_.name, " --help.");
    return *found;
}

std::vector<std::string> Arguments::list(const std::string& name, const std::string& otherwise) const {
    std::vector<std::string> names;
    std::istringstream text(value(name).value_or(otherwise));
    for (std::string one; std::getline(text, one, ',');) names.push_back(one);
    check(!names.empty(), name, " is empty, expected names separated by commas such as ", otherwise, ".");
    return names;
}

std::optional<std::int64_t> Arguments::integer(const std::string& name, std::int64_t lowest,
                                               std::int64_t highest) const {
    const std::optional<std::string> text = value(name);
    if (!text) return std::nullopt;
    std::int64_t number = 0;
    const char* end = text->data() + text->size();
    const auto [parsed, error] = std::from_chars(text->data(), end, number);
    check(error == std::errc() && parsed == end && number >= lowest && number <= highest, name,
          " expects a whole number from ", lowest, " to ", highest, ", found '", *text, "'.");
    return number;
}

std::optional<double> Arguments::number(const std::string& name) const {
    const std::optional<std::string> text = value(name);
    if (!text) return std::nullopt;
    char* end = nullptr;
    const double number = std::strtod(text->c_str(), &end);
    check(!text->empty() && *end == '\0' && std::isfinite(number), name, " expects a number, found '", *text, "'.");
    return number;
}

}  // namespace quads
