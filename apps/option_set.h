#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/values.h"

namespace longtune::cli {

/// How one option looks.
struct OptionText {
  std::string name;   ///< without the hyphens; dotted where it belongs to a group
  std::string value;  ///< what --help calls its value: "N", "PATH"; empty for a switch
  std::string help;
  std::string shown_default = {};  ///< instead of the value itself
  bool remembered = true;  ///< whether it stands in the resolved configuration that a run leaves
};

/// Where a value comes from; the command line wins over the file, the file over the default.
enum class Origin : std::uint8_t { kDefault, kFile, kCommandLine };

/// The options of one command: read from the command line and from a TOML file (`--config`), shown
/// by --help, and written back as the resolved configuration.
class OptionSet {
 public:
  /// `usage`: "train --model PATH --data PATH... [options]".
  OptionSet(std::string usage, std::string summary);

  /// Options added from now on stand under `title` in --help.
  void group(std::string title);

  /// An option whose value goes to `target`, whose present value is the default.
  template <class T>
  void add(OptionText text, T& target) {
    add_option(
        std::move(text),
        std::is_same_v<T, bool> ? Kind::kSwitch
        : is_quoted<T>          ? Kind::kText
                                : Kind::kPlain,
        [&target](const std::vector<std::string>& texts) { parse_value(texts.front(), target); },
        [&target] { return std::vector{text_of(target)}; });
  }

  /// An option that takes several values.
  void add_list(OptionText text, std::vector<std::filesystem::path>& target);

  /// An option that takes one of a few words.
  template <class T>
  void add_choice(OptionText text, T& target, std::vector<std::pair<std::string, T>> choices) {
    const auto name_of_target = [&target, choices] {
      for (const auto& [name, value] : choices) {
        if (value == target) {
          return std::vector{name};
        }
      }
      return std::vector<std::string>{};
    };
    const auto set = [&target, choices](const std::vector<std::string>& texts) {
      std::string known;
      for (const auto& [name, value] : choices) {
        if (name == texts.front()) {
          target = value;
          return;
        }
        known += (known.empty() ? "" : ", ") + name;
      }
      throw BadValue("'" + texts.front() + "' is not one of " + known);
    };
    add_option(std::move(text), Kind::kText, set, name_of_target);
  }

  /// One argument without a name may stand for option `name`.
  void allow_positional(std::string name) { positional_ = std::move(name); }

  /// The file that --config names may also hold options of these names, which are not read: it may
  /// have been made for another command.
  void ignore_in_file(std::vector<std::string> names) { ignored_ = std::move(names); }

  /// Reads the arguments after the command's name, and the file that --config names. Returns false
  /// where help was asked for. Throws Error: kInvalidArgument for arguments, or values in the file,
  /// that no option takes; kBadInput or kIo for the file itself.
  [[nodiscard]] bool parse(const std::vector<std::string>& arguments);

  [[nodiscard]] Origin origin(std::string_view name) const;

  /// Throws Error kInvalidArgument, naming the option, where it was given nowhere.
  void require(std::string_view name) const;

  /// Of two options that exclude each other, the one to heed, if any is given. Throws Error
  /// kInvalidArgument where both come from the same place.
  [[nodiscard]] std::optional<std::string> choose(const std::string& a, const std::string& b) const;

  [[nodiscard]] std::string help() const;

  [[nodiscard]] std::vector<std::string> names() const;

  /// The resolved configuration, as TOML that --config takes.
  [[nodiscard]] std::string toml() const;

 private:
  enum class Kind : std::uint8_t { kPlain, kText, kSwitch, kList };

  template <class T>
  static constexpr bool is_quoted =
      !std::is_arithmetic_v<T> && !std::is_same_v<T, std::optional<std::int64_t>> &&
      !std::is_same_v<T, std::optional<double>>;

  struct Option {
    OptionText text;
    std::string group;
    Kind kind = Kind::kPlain;
    std::function<void(const std::vector<std::string>&)> set;
    std::function<std::vector<std::string>()> get;
    std::vector<std::string> typed = {};  ///< on the command line
    Origin origin = Origin::kDefault;
  };

  void add_option(OptionText text,
                  Kind kind,
                  std::function<void(const std::vector<std::string>&)> set,
                  std::function<std::vector<std::string>()> get);
  [[nodiscard]] bool read_command_line(std::vector<std::string> arguments);
  void read_file(const std::filesystem::path& path);
  void take_unnamed(const std::vector<std::string>& rest);
  [[nodiscard]] const Option* find(std::string_view name) const;
  [[nodiscard]] std::string suggestion(std::string_view name, std::string_view prefix) const;

  std::string usage_;
  std::string summary_;
  std::string group_;
  std::string positional_;
  std::vector<std::string> ignored_;
  std::vector<Option> options_;
  std::optional<std::filesystem::path> config_;
};

}  // namespace longtune::cli
