#include "apps/option_set.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/toml_values.h"
#include "base/error.h"
#include "base/text.h"

namespace longtune::cli {
namespace {

constexpr const char* kWhere = "options";
constexpr std::size_t kHelpColumn = 28;
constexpr std::size_t kHelpWidth = 100;

/// `text`, broken between words where it would pass the width, under column kHelpColumn.
[[nodiscard]] std::string wrapped(const std::string& text) {
  std::string result;
  std::size_t column = kHelpColumn;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (column + end - begin >= kHelpWidth && column > kHelpColumn) {
      result += "\n" + std::string(kHelpColumn, ' ');
      column = kHelpColumn;
    } else if (begin > 0) {
      result += ' ';
      ++column;
    }
    result += text.substr(begin, end - begin);
    column += end - begin;
    begin = end + 1;
  }
  return result;
}

}  // namespace

OptionSet::OptionSet(std::string usage, std::string summary)
    : usage_(std::move(usage)), summary_(std::move(summary)) {}

void OptionSet::group(std::string title) {
  group_ = std::move(title);
}

void OptionSet::add_option(OptionText text,
                           Kind kind,
                           std::function<void(const std::vector<std::string>&)> set,
                           std::function<std::vector<std::string>()> get) {
  options_.push_back({.text = std::move(text),
                      .group = group_,
                      .kind = kind,
                      .set = std::move(set),
                      .get = std::move(get)});
  Option& added = options_.back();
  if (added.text.shown_default.empty() && kind != Kind::kSwitch) {
    added.text.shown_default = fmt::format("{}", fmt::join(added.get(), " "));
  }
}

void OptionSet::add_list(OptionText text, std::vector<std::filesystem::path>& target) {
  const auto set = [&target](const std::vector<std::string>& texts) {
    target.clear();
    for (const std::string& one : texts) {
      parse_value(one, target.emplace_back());
    }
  };
  const auto get = [&target] {
    std::vector<std::string> texts;
    for (const std::filesystem::path& path : target) {
      texts.push_back(path.string());
    }
    return texts;
  };
  add_option(std::move(text), Kind::kList, set, get);
}

bool OptionSet::parse(const std::vector<std::string>& arguments) {
  group("Help");
  add({"config", "FILE", "TOML file with any of these options; the command line wins", "", false},
      config_);
  if (!read_command_line(arguments)) {
    return false;
  }
  for (Option& option : options_) {
    if (option.typed.empty()) {
      continue;
    }
    try {
      option.set(option.typed);
    } catch (const BadValue& error) {
      fail(ErrorCode::kInvalidArgument, kWhere, "--{}: {}", option.text.name, error.what());
    }
    option.origin = Origin::kCommandLine;
  }
  if (config_) {
    read_file(*config_);
  }
  return true;
}

bool OptionSet::read_command_line(std::vector<std::string> arguments) {
  CLI::App parser;
  parser.allow_extras();
  for (Option& option : options_) {
    const std::string name = "--" + option.text.name;
    if (option.kind == Kind::kSwitch) {
      parser.add_flag(name, option.typed);
    } else if (option.kind == Kind::kList) {
      parser.add_option(name, option.typed)->expected(1, 1 << 20);
    } else {
      // Without extra arguments, "[a,b]" stays one value.
      parser.add_option(name, option.typed)->expected(1)->allow_extra_args(false);
    }
  }
  try {
    std::ranges::reverse(arguments);  // as the parser takes them
    parser.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string name = std::string(error.what()).substr(2);  // "--steps: ..."
    const Option* option = find(name.substr(0, name.find(':')));
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "--{} takes {} value",
         option->text.name,
         option->kind == Kind::kList ? "at least one" : "one");
  } catch (const CLI::ParseError& error) {
    fail(ErrorCode::kInvalidArgument, kWhere, "{}", error.what());
  }
  take_unnamed(parser.remaining());
  return true;
}

void OptionSet::take_unnamed(const std::vector<std::string>& rest) {
  for (const std::string& argument : rest) {
    if (argument.starts_with("-") && argument.size() > 1) {
      const std::string name = argument.substr(0, argument.find('='));
      fail(ErrorCode::kInvalidArgument,
           kWhere,
           "unknown option {}{}",
           in_quotes(name),
           suggestion(name.substr(name.find_first_not_of('-') == std::string::npos
                                      ? name.size()
                                      : name.find_first_not_of('-')),
                      "--"));
    }
    const auto option =
        std::ranges::find_if(options_, [&](const Option& o) { return o.text.name == positional_; });
    if (option == options_.end() || !option->typed.empty()) {
      fail(ErrorCode::kInvalidArgument, kWhere, "unexpected argument {}", in_quotes(argument));
    }
    option->typed.push_back(argument);
  }
}

void OptionSet::read_file(const std::filesystem::path& path) {
  for (const TomlValue& value : read_toml(path)) {
    const std::string where = fmt::format("{}:{}", path.string(), value.line);
    const auto option =
        std::ranges::find_if(options_, [&](const Option& o) { return o.text.name == value.name; });
    if (option == options_.end() && std::ranges::find(ignored_, value.name) != ignored_.end()) {
      continue;
    }
    if (option == options_.end() || value.name == "config") {
      fail(ErrorCode::kInvalidArgument,
           kWhere,
           "{}: unknown option {}{}",
           where,
           in_quotes(value.name),
           suggestion(value.name, ""));
    }
    if (option->origin == Origin::kCommandLine) {
      continue;
    }
    if (value.texts.empty() || (value.is_array && option->kind != Kind::kList)) {
      fail(ErrorCode::kInvalidArgument,
           kWhere,
           "{}: {} takes {} value",
           where,
           value.name,
           option->kind == Kind::kList ? "at least one" : "one");
    }
    try {
      option->set(value.texts);
    } catch (const BadValue& error) {
      fail(ErrorCode::kInvalidArgument, kWhere, "{}: {}: {}", where, value.name, error.what());
    }
    option->origin = Origin::kFile;
  }
}

const OptionSet::Option* OptionSet::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(options_, [&](const Option& o) { return o.text.name == name; });
  if (found == options_.end()) {
    fail(ErrorCode::kInternal, kWhere, "there is no option --{}", name);
  }
  return &*found;
}

std::vector<std::string> OptionSet::names() const {
  std::vector<std::string> names;
  for (const Option& option : options_) {
    names.push_back(option.text.name);
  }
  return names;
}

std::string OptionSet::suggestion(std::string_view name, std::string_view prefix) const {
  const std::optional<std::string> nearest = nearest_name(name, names());
  return nearest ? fmt::format("; did you mean {}{}?", prefix, *nearest) : "";
}

Origin OptionSet::origin(std::string_view name) const {
  return find(name)->origin;
}

void OptionSet::require(std::string_view name) const {
  const Option* option = find(name);
  if (option->origin == Origin::kDefault) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "--{} {} is needed: {}",
         name,
         option->text.value,
         option->text.help);
  }
}

std::optional<std::string> OptionSet::choose(const std::string& a, const std::string& b) const {
  const Origin from_a = origin(a);
  const Origin from_b = origin(b);
  if (from_a == Origin::kDefault && from_b == Origin::kDefault) {
    return std::nullopt;
  }
  if (from_a == from_b) {
    fail(ErrorCode::kInvalidArgument, kWhere, "--{} and --{} exclude each other", a, b);
  }
  return from_a > from_b ? a : b;
}

std::string OptionSet::help() const {
  std::string text = fmt::format("{}\n\nusage: longtune {}\n", summary_, usage_);
  std::string group;
  for (const Option& option : options_) {
    if (option.group != group) {
      group = option.group;
      text += fmt::format("\n{}\n", group);
    }
    std::string left = "  --" + option.text.name;
    left += option.text.value.empty() ? "" : " " + option.text.value;
    std::string right = option.text.help;
    if (!option.text.shown_default.empty()) {
      right += fmt::format(" [{}]", option.text.shown_default);
    }
    const bool fits = left.size() + 2 <= kHelpColumn;
    text += fits ? fmt::format("{:<{}}", left, kHelpColumn)
                 : left + "\n" + std::string(kHelpColumn, ' ');
    text += wrapped(right) + "\n";
  }
  return text;
}

std::string OptionSet::toml() const {
  std::string text;
  std::string table;
  for (const bool in_table : {false, true}) {
    for (const Option& option : options_) {
      const std::string& name = option.text.name;
      const std::size_t dot = name.find('.');
      const std::vector<std::string> values = option.get();
      const bool is_empty = values.empty() || (values.size() == 1 && values[0].empty());
      if (!option.text.remembered || is_empty || (dot != std::string::npos) != in_table) {
        continue;
      }
      if (in_table && name.substr(0, dot) != table) {
        table = name.substr(0, dot);
        text += fmt::format("\n[{}]\n", table);
      }
      std::vector<std::string> shown;
      for (const std::string& value : values) {
        const bool is_bare =
            option.kind == Kind::kSwitch || (option.kind == Kind::kPlain && is_toml_number(value));
        shown.push_back(is_bare ? value : toml_string(value));
      }
      const std::string joined = fmt::format("{}", fmt::join(shown, ", "));
      text += fmt::format("{} = {}\n",
                          in_table ? name.substr(dot + 1) : name,
                          option.kind == Kind::kList ? "[" + joined + "]" : joined);
    }
  }
  return text;
}

}  // namespace longtune::cli
