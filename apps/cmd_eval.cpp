#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "apps/command.h"
#include "apps/console.h"
#include "apps/json_file.h"
#include "apps/options.h"
#include "apps/plan_table.h"
#include "apps/progress.h"
#include "apps/rope_record.h"
#include "apps/text_model.h"
#include "eval/perplexity.h"
#include "io/atomic_file.h"
#include "train/data.h"

namespace longtune::cli {
namespace {

struct EvalArgs {
  ModelArgs model;
  MemoryArgs memory;
  CommonArgs common;
  std::vector<std::filesystem::path> data;
  std::optional<std::int64_t> tokens;
  PerplexityOptions perplexity;
  std::optional<std::filesystem::path> losses;
};

void add_options(OptionSet& options, EvalArgs& args, std::optional<std::filesystem::path>& json) {
  add_model_options(options, args.model);
  add_memory_options(options, args.memory);
  options.group("Text");
  options.add_list({"data", "PATH...", ".txt and .md documents, .jsonl lines, or directories"},
                   args.data);
  options.add({"tokens", "N", "only the first N tokens of the text", "all"}, args.tokens);
  options.add({"context", "N", "tokens of a window"}, args.perplexity.context);
  options.add({"stride", "N", "tokens between the starts of windows", "the context"},
              args.perplexity.stride);
  options.add({"buckets", "LIST", "positions at which buckets begin", "0,512,1024,2048,..."},
              args.perplexity.buckets);
  options.add({"losses", "FILE", "nats of every token, a line each, for paired comparisons"},
              args.losses);
  add_common_options(options, args.common, json);
}

[[nodiscard]] TextTokens read_tokens(const EvalArgs& args, const TextModel& model) {
  if (args.tokens && *args.tokens < 2) {
    fail(ErrorCode::kInvalidArgument,
         "options",
         "--tokens {}: at least 2 are needed, as the first is not scored",
         *args.tokens);
  }
  TextTokens text = read_text_tokens(args.data, model.tokenizer);
  std::vector<std::int32_t>& tokens = text.tokens;
  if (args.tokens && *args.tokens < static_cast<std::int64_t>(tokens.size())) {
    tokens.resize(static_cast<std::size_t>(*args.tokens));
  }
  if (tokens.size() < 2) {
    fail(ErrorCode::kBadInput,
         "data",
         "{} is a text of {} tokens, with nothing to score: at least 2 are needed",
         args.data.front().string(),
         tokens.size());
  }
  return text;
}

void print_result(const PerplexityResult& result) {
  print_output("{:>10}{:>10}{:>10}{:>10}\n", "from", "to", "tokens", "nats");
  for (const PerplexityResult::Bucket& bucket : result.buckets) {
    if (bucket.tokens > 0) {
      print_output(
          "{:>10}{:>10}{:>10}{:>10.4f}\n", bucket.from, bucket.to, bucket.tokens, bucket.nats);
    }
  }
  print_output(
      "{} tokens: {:.4f} nats, perplexity {:.3f}\n", result.tokens, result.nats, result.perplexity);
}

// Tab-separated; nine digits read back to the same f32.
void write_losses(const std::filesystem::path& path, const PerplexityResult& result) {
  AtomicFile file(path);
  file.write("token\tposition\tnats\n");
  for (const PerplexityResult::TokenLoss& loss : result.losses) {
    file.write(fmt::format("{}\t{}\t{:.9g}\n", loss.token, loss.position, loss.nats));
  }
  file.commit();
}

[[nodiscard]] Json result_json(const PerplexityResult& result) {
  Json json = {{"tokens", result.tokens},
               {"nats", result.nats},
               {"perplexity", result.perplexity},
               {"buckets", Json::array()}};
  for (const PerplexityResult::Bucket& bucket : result.buckets) {
    json["buckets"].push_back({{"from", bucket.from},
                               {"to", bucket.to},
                               {"tokens", bucket.tokens},
                               {"nats", bucket.nats}});
  }
  return json;
}

}  // namespace

Outcome run_eval_perplexity(const std::vector<std::string>& arguments,
                            std::optional<std::filesystem::path>& json) {
  EvalArgs args;
  OptionSet options("eval perplexity --model PATH --data PATH... [options]",
                    "Measures how well a text is read: nats a token and perplexity by position");
  add_options(options, args, json);
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  options.require("model");
  options.require("data");
  check(args.perplexity);
  resolve_model(options, args.model);
  prepare(args.common, json);
  if (args.losses) {
    check_writable(*args.losses);
    args.perplexity.keep_losses = true;
  }

  const TextModel model = open_text_model(args.model.model);
  const TextTokens text = read_tokens(args, model);
  const std::vector<std::int32_t>& tokens = text.tokens;
  SessionOptions session_options{.model = args.model.options,
                                 .context = args.perplexity.context,
                                 .adapter = args.model.adapter};
  const ModelConfig& config = model.source->config();
  write_notice(rope_note(args.model.adapter, config, args.model.options.rope));
  if (!args.common.is_quiet) {
    write_notice(context_note(config, args.model.options.rope, args.perplexity.context));
  }
  const Budgets budgets = budgets_of(args.memory, args.model);
  Progress progress(stderr, progress_mode(args.common.is_quiet, args.common.is_verbose));
  progress.note(fmt::format(
      "text: {} tokens{}", tokens.size(), describe_bytes(text.invalid_bytes, text.missing_bytes)));
  progress.note(plan_line(Session::plan(*model.source, session_options), budgets));
  Session session(*model.source, session_options, budgets, [&](double share) {
    progress.share("loading weights", share);
  });
  const auto start = std::chrono::steady_clock::now();
  const PerplexityResult result = perplexity(session, tokens, args.perplexity, [&](double share) {
    progress.update(fmt::format("reading {} tokens: {:.0f} %", tokens.size(), 100 * share));
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  progress.last(fmt::format("read {} tokens", tokens.size()));
  if (!std::isfinite(result.perplexity)) {
    fail(ErrorCode::kBadInput,
         "eval",
         "{} reads the text at {} nats a token: its weights, or those of --adapter, are not finite "
         "or "
         "far too large",
         args.model.model.string(),
         result.nats);
  }
  print_result(result);
  if (args.losses) {
    write_losses(*args.losses, result);
  }
  Json summary = result_json(result);
  summary["seconds"] = seconds.count();
  summary["device_bytes_peak"] = session.device_bytes_peak();
  summary["host_bytes_peak"] = session.host_bytes_peak();
  return {.result = std::move(summary)};
}

}  // namespace longtune::cli
