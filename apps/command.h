#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "apps/json_file.h"
#include "base/error.h"

namespace longtune::cli {

/// What scripts see of the program's end.
enum class ExitStatus : std::uint8_t {
  kDone = 0,
  kInternal = 1,
  kUsage = 2,
  kOutOfBudget = 3,
  kBadInput = 4,
  kIo = 5,
  kInterrupted = 130,
};

[[nodiscard]] ExitStatus exit_status_of(ErrorCode code);

/// "invalid_argument", "bad_input", ...: the code in a JSON error.
[[nodiscard]] const char* name_of(ErrorCode code);

/// A signal ended the command. what() says what was saved.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a command leaves to main.
struct Outcome {
  ExitStatus status = ExitStatus::kDone;
  Json result = nullptr;  ///< written to the file that --json names; null: there is none
};

/// A command gets the arguments after its name and where --json is to be noted.
using CommandFunction = Outcome (*)(const std::vector<std::string>& arguments,
                                    std::optional<std::filesystem::path>& json);

struct Command {
  const char* name;  ///< one word or two
  const char* summary;
  CommandFunction run;
};

[[nodiscard]] const std::vector<Command>& commands();

Outcome run_plan(const std::vector<std::string>& arguments,
                 std::optional<std::filesystem::path>& json);
Outcome run_inspect(const std::vector<std::string>& arguments,
                    std::optional<std::filesystem::path>& json);
Outcome run_train(const std::vector<std::string>& arguments,
                  std::optional<std::filesystem::path>& json);
Outcome run_eval_perplexity(const std::vector<std::string>& arguments,
                            std::optional<std::filesystem::path>& json);
Outcome run_bench_kernels(const std::vector<std::string>& arguments,
                          std::optional<std::filesystem::path>& json);
Outcome run_bench_needle(const std::vector<std::string>& arguments,
                         std::optional<std::filesystem::path>& json);
Outcome run_bench_prefill(const std::vector<std::string>& arguments,
                          std::optional<std::filesystem::path>& json);
Outcome run_bench_train(const std::vector<std::string>& arguments,
                        std::optional<std::filesystem::path>& json);
Outcome run_generate(const std::vector<std::string>& arguments,
                     std::optional<std::filesystem::path>& json);

/// Finds the command that `arguments` begin with and runs it; errors become the line on standard
/// error, the object in the JSON file, and the status. Never throws.
[[nodiscard]] int run_program(const std::vector<std::string>& arguments);

}  // namespace longtune::cli
