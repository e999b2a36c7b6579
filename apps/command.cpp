#include "apps/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "apps/console.h"
#include "apps/json_file.h"
#include "apps/values.h"
#include "base/text.h"

namespace longtune::cli {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

/// The commands whose names begin with `prefix`.
[[nodiscard]] std::string help(std::string_view prefix = {}) {
  std::string text =
      "Fine-tunes and runs language models on long contexts within a named memory budget\n\n"
      "usage: longtune COMMAND [options]\n\n";
  for (const Command& command : commands()) {
    if (std::string_view(command.name).starts_with(prefix)) {
      text += fmt::format("  {:<18}{}\n", command.name, command.summary);
    }
  }
  return text +
         "\nlongtune COMMAND --help shows the options of a command; longtune --version the "
         "version\n";
}

/// Where errors go before the options are read, and also where they cannot be.
[[nodiscard]] std::optional<fs::path> json_argument(const Arguments& arguments) {
  constexpr std::string_view kName = "--json";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kName && i + 1 < arguments.size()) {
      return arguments[i + 1];
    }
    if (arguments[i].starts_with("--json=")) {
      return arguments[i].substr(kName.size() + 1);
    }
  }
  return std::nullopt;
}

int report_error(ExitStatus status,
                 const char* code,
                 std::string message,
                 const std::optional<fs::path>& json) {
  std::ranges::replace(message, '\n', ' ');
  message = printable(message);
  if (json) {
    try {
      write_json(*json, {{"error", {{"code", code}, {"message", message}}}});
    } catch (const std::exception&) {
      // The first fault is the one to report.
    }
  }
  print_notice("longtune: {}\n", message);
  return static_cast<int>(status);
}

[[nodiscard]] Outcome run_command(const Arguments& arguments, std::optional<fs::path>& json) {
  if (arguments.empty()) {
    fail(ErrorCode::kInvalidArgument, "usage", "a command is needed; see longtune --help");
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    write_output(help());
    return {};
  }
  if (arguments[0] == "--version") {
    print_output("longtune {}\n", LONGTUNE_VERSION);
    return {};
  }
  const std::string two = arguments.size() > 1 ? arguments[0] + " " + arguments[1] : arguments[0];
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == arguments[0]) {
      return command.run({arguments.begin() + 1, arguments.end()}, json);
    }
    if (command.name == two) {
      return command.run({arguments.begin() + 2, arguments.end()}, json);
    }
    names.emplace_back(command.name);
  }
  std::vector<std::string> of_family;
  std::ranges::copy_if(names, std::back_inserter(of_family), [&](const std::string& name) {
    return name.starts_with(arguments[0] + " ");
  });
  const bool asks_for_help =
      arguments.size() > 1 && (arguments[1] == "--help" || arguments[1] == "-h");
  if (!of_family.empty() && asks_for_help) {
    write_output(help(arguments[0] + " "));
    return {};
  }
  if (!of_family.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "usage",
         "{} is followed by what it does: {}",
         arguments[0],
         fmt::format("{}", fmt::join(of_family, ", ")));
  }
  const std::optional<std::string> nearest = nearest_name(two, names);
  fail(ErrorCode::kInvalidArgument,
       "usage",
       "there is no command {}; {}",
       in_quotes(arguments[0]),
       nearest ? fmt::format("did you mean {}?", *nearest)
               : fmt::format("there are {}", fmt::join(names, ", ")));
}

}  // namespace

ExitStatus exit_status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return ExitStatus::kUsage;
    case ErrorCode::kBadInput:
      return ExitStatus::kBadInput;
    case ErrorCode::kIo:
      return ExitStatus::kIo;
    case ErrorCode::kOutOfBudget:
      return ExitStatus::kOutOfBudget;
    case ErrorCode::kInternal:
      return ExitStatus::kInternal;
  }
  return ExitStatus::kInternal;
}

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kBadInput:
      return "bad_input";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kOutOfBudget:
      return "out_of_budget";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = {
      {"plan", "says what a training run would need, without loading weights", run_plan},
      {"inspect", "shows a model, an adapter or a checkpoint; tokenises a file", run_inspect},
      {"train", "trains an adapter", run_train},
      {"eval perplexity", "nats a token and perplexity by position", run_eval_perplexity},
      {"generate", "continues a prompt", run_generate},
      {"bench kernels", "times operations beside the machine's measured limits", run_bench_kernels},
      {"bench needle", "shows how often routing finds one key among random ones", run_bench_needle},
      {"bench prefill", "shows where the time of reading a sequence goes", run_bench_prefill},
      {"bench train", "shows where the time of a training step goes", run_bench_train},
  };
  return kCommands;
}

int run_program(const Arguments& arguments) {
  std::optional<fs::path> json = json_argument(arguments);
  try {
    const Outcome outcome = run_command(arguments, json);
    flush_output();
    if (json && !outcome.result.is_null()) {
      write_json(*json, outcome.result);
    }
    return static_cast<int>(outcome.status);
  } catch (const Interrupted& stop) {
    return report_error(ExitStatus::kInterrupted, "interrupted", stop.what(), json);
  } catch (const Error& error) {
    return report_error(exit_status_of(error.code()), name_of(error.code()), error.what(), json);
  } catch (const std::bad_alloc&) {
    return report_error(ExitStatus::kIo, "io", "[memory] the system has no more memory", json);
  } catch (const fs::filesystem_error& error) {
    return report_error(ExitStatus::kIo, "io", error.what(), json);
  } catch (const std::exception& error) {
    return report_error(ExitStatus::kInternal,
                        "internal",
                        fmt::format("[internal] a fault of longtune's: {}", error.what()),
                        json);
  }
}

}  // namespace longtune::cli
