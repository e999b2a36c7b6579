#include <fmt/format.h>

#include <chrono>

#include "apps/command.h"
#include "apps/console.h"
#include "apps/options.h"
#include "apps/plan_table.h"
#include "apps/progress.h"
#include "apps/rope_record.h"
#include "apps/text_model.h"
#include "base/bytes.h"
#include "infer/sampler.h"
#include "infer/session.h"
#include "io/reader.h"

namespace longtune::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kLargestPrompt = 256 * kMiB;
constexpr std::int64_t kMostTokens = 1 << 30;

struct GenerateArgs {
  ModelArgs model;
  MemoryArgs memory;
  CommonArgs common;
  std::string prompt;
  std::filesystem::path prompt_file;
  std::int64_t max_tokens = 128;
  SamplerOptions sampler;
};

void add_options(OptionSet& options,
                 GenerateArgs& args,
                 std::optional<std::filesystem::path>& json) {
  add_model_options(options, args.model);
  add_memory_options(options, args.memory);
  options.group("Text");
  options.add({"prompt", "TEXT", "what to continue; spellings of special tokens are tokens"},
              args.prompt);
  options.add({"prompt-file", "FILE", "the same from a file"}, args.prompt_file);
  options.add({"max-tokens", "N", "most tokens to generate"}, args.max_tokens);
  options.group("Sampling");
  options.add({"temperature", "X", "0: always the likeliest token"}, args.sampler.temperature);
  options.add({"top-k", "N", "only the N likeliest tokens; 0: all"}, args.sampler.top_k);
  options.add({"top-p", "P", "only the likeliest tokens that together reach P"},
              args.sampler.top_p);
  options.add({"seed", "N", "of the draws"}, args.sampler.seed);
  add_common_options(options, args.common, json);
}

[[nodiscard]] std::string prompt_text(const OptionSet& options, const GenerateArgs& args) {
  const std::optional<std::string> from = options.choose("prompt", "prompt-file");
  if (!from) {
    options.require("prompt");
  }
  if (from == "prompt") {
    return args.prompt;
  }
  const File file(args.prompt_file);
  if (file.size() > kLargestPrompt) {
    fail(ErrorCode::kBadInput,
         "prompt",
         "{} is longer than {}, the most that a prompt may have",
         file.name(),
         format_bytes(kLargestPrompt));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

[[nodiscard]] std::vector<std::int32_t> prompt_tokens(const std::string& prompt,
                                                      const GenerateArgs& args,
                                                      const Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt, SpecialTokens::kParse);
  const std::optional<std::int32_t> bos =
      tokenizer.adds_bos() ? tokenizer.bos_token() : std::nullopt;
  if (bos && (tokens.empty() || tokens.front() != *bos)) {
    tokens.insert(tokens.begin(), *bos);
  }
  if (tokens.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "options",
         "{} is empty: there is nothing to continue",
         args.prompt_file.empty() ? "--prompt" : "--prompt-file " + args.prompt_file.string());
  }
  return tokens;
}

struct Generation {
  std::vector<std::int32_t> tokens;
  bool ended = false;  ///< by the end-of-text token, which is not among them
  double prompt_seconds = 0;
  std::int64_t decoded = 0;  ///< tokens read one at a time, to write the next
  double seconds = 0;        ///< of those
};

[[nodiscard]] double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Reads the prompt and prints tokens as they come.
[[nodiscard]] Generation generate(Session& session,
                                  const Tokenizer& tokenizer,
                                  const std::vector<std::int32_t>& prompt,
                                  const GenerateArgs& args) {
  Sampler sampler(args.sampler);
  Generation result;
  Clock::time_point start = Clock::now();
  std::vector<float> logits = session.read(prompt);
  result.prompt_seconds = since(start);
  start = Clock::now();
  while (true) {
    const std::int32_t token = sampler.sample(logits, session.tokens());
    if (token == tokenizer.eos_token()) {
      result.ended = true;
      break;
    }
    result.tokens.push_back(token);
    write_output(tokenizer.decode({token}, true));
    flush_output();
    if (static_cast<std::int64_t>(result.tokens.size()) == args.max_tokens) {
      break;
    }
    logits = session.read(std::span(&token, 1));
    ++result.decoded;
  }
  result.seconds = since(start);
  write_output("\n");
  flush_output();  // before what is printed elsewhere
  return result;
}

}  // namespace

Outcome run_generate(const std::vector<std::string>& arguments,
                     std::optional<std::filesystem::path>& json) {
  GenerateArgs args;
  OptionSet options("generate --model PATH --prompt TEXT [options]", "Continues a prompt");
  add_options(options, args, json);
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  options.require("model");
  const std::string prompt = prompt_text(options, args);
  if (args.max_tokens < 1 || args.max_tokens > kMostTokens) {
    fail(ErrorCode::kInvalidArgument,
         "options",
         "--max-tokens {} is not in 1 .. {}",
         args.max_tokens,
         kMostTokens);
  }
  (void)Sampler(args.sampler);  // refuses its options before the weights are loaded
  resolve_model(options, args.model);
  prepare(args.common, json);

  const TextModel model = open_text_model(args.model.model);
  const std::vector<std::int32_t> tokens = prompt_tokens(prompt, args, model.tokenizer);
  SessionOptions session_options{
      .model = args.model.options,
      .context = static_cast<std::int64_t>(tokens.size()) + args.max_tokens,
      .adapter = args.model.adapter};
  const ModelConfig& config = model.source->config();
  const RopeChoice& rope = args.model.options.rope;
  write_notice(rope_note(args.model.adapter, config, rope));
  const Budgets budgets = budgets_of(args.memory, args.model);
  Progress progress(stderr, progress_mode(args.common.is_quiet, args.common.is_verbose));
  const std::int64_t made_for = with_rope(config, rope).max_context;
  if (made_for > 0 && session_options.context > made_for) {
    progress.note(fmt::format("prompt and --max-tokens are {} tokens; the model was made for {}",
                              session_options.context,
                              made_for));
  }
  if (args.common.is_verbose) {
    progress.note(plan_line(Session::plan(*model.source, session_options), budgets));
  }
  Session session(*model.source, session_options, budgets, {});
  const Generation result = generate(session, model.tokenizer, tokens, args);
  std::optional<double> rate;
  if (result.decoded > 0) {
    rate = static_cast<double>(result.decoded) / result.seconds;
  }
  progress.note(fmt::format("{} tokens read in {:.1f} s, {} written{}",
                            tokens.size(),
                            result.prompt_seconds,
                            result.tokens.size(),
                            rate ? fmt::format(" at {:.1f} tokens/s", *rate) : ""));
  return {.result = {{"text", model.tokenizer.decode(result.tokens, true)},
                     {"tokens", result.tokens},
                     {"finish", result.ended ? "end-of-text" : "length"},
                     {"prompt_tokens", tokens.size()},
                     {"prompt_seconds", result.prompt_seconds},
                     {"seconds", result.seconds},
                     {"tokens_per_s", rate ? Json(*rate) : Json(nullptr)},
                     {"device_bytes_peak", session.device_bytes_peak()},
                     {"host_bytes_peak", session.host_bytes_peak()}}};
}

}  // namespace longtune::cli
