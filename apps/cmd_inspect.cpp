#include <fmt/format.h>

#include <map>

#include "apps/command.h"
#include "apps/config_json.h"
#include "apps/console.h"
#include "apps/options.h"
#include "apps/rope_record.h"
#include "apps/text_model.h"
#include "base/bytes.h"
#include "base/text.h"
#include "io/json.h"
#include "io/reader.h"
#include "model/adapter.h"

namespace longtune::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestText = 1024 * kMiB;

struct InspectArgs {
  fs::path model;
  fs::path tokenize;
  bool parse_special = false;
  CommonArgs common;
};

/// Parameters and bytes, in all and by format.
[[nodiscard]] Json tensors_json(const ModelSource& source) {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> formats;  // tensors, bytes
  for (const SourceTensor& tensor : source.tensors()) {
    const std::int64_t size = weight_bytes(tensor.format, tensor.N, tensor.K).value_or(0);
    parameters += tensor.N * tensor.K;
    bytes += size;
    auto& [count, total] = formats[longtune::name_of(tensor.format)];
    ++count;
    total += size;
  }
  Json json = {{"parameters", parameters},
               {"bytes", bytes},
               {"tensors", source.tensors().size()},
               {"formats", Json::object()}};
  for (const auto& [name, totals] : formats) {
    json["formats"][name] = {{"tensors", totals.first}, {"bytes", totals.second}};
  }
  return json;
}

[[nodiscard]] Json tokenizer_json(const Tokenizer& tokenizer) {
  const auto id = [](std::optional<std::int32_t> token) {
    return token ? Json(*token) : Json(nullptr);
  };
  return {{"pre_tokenizer", tokenizer.pre_tokenizer()},
          {"vocabulary", tokenizer.vocabulary_size()},
          {"bos", id(tokenizer.bos_token())},
          {"eos", id(tokenizer.eos_token())},
          {"adds_bos", tokenizer.adds_bos()}};
}

/// Prints an object's members a line each, those of inner objects after a dot.
void print_members(const Json& object, const std::string& prefix = "") {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      print_members(value, prefix + key + ".");
      continue;
    }
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_number_integer() && key.ends_with("bytes")) {
      text = format_bytes(value.get<std::int64_t>());
    }
    print_output("  {:<32} {}\n", printable(prefix + key), printable(text));
  }
}

[[nodiscard]] Json inspect_model(const fs::path& path) {
  const std::unique_ptr<ModelSource> source = open_model(path);
  Json json = {{"model", path.string()},
               {"kind", source->kind()},
               {"config", config_json(source->config())},
               {"weights", tensors_json(*source)},
               {"tokenizer", nullptr}};
  // A directory without a tokenizer is half a model, but what there is can be shown.
  if (!fs::is_directory(path) || fs::exists(path / "tokenizer.json")) {
    json["tokenizer"] = tokenizer_json(Tokenizer::load(path));
  }
  return json;
}

[[nodiscard]] Json inspect_adapter(const fs::path& path) {
  const LoraConfig lora = read_lora_config(path);
  Json json = {{"adapter", path.string()},
               {"rank", lora.rank},
               {"alpha", lora.alpha},
               {"dropout", lora.dropout},
               {"rslora", lora.rslora},
               {"targets", Json::array()}};
  for (int i = 0; i < kLinearKinds; ++i) {
    if (lora.targets.at(i)) {
      json["targets"].push_back(longtune::name_of(static_cast<LinearKind>(i)));
    }
  }
  const Json config = read_json(path / "adapter_config.json");
  if (config.contains("base_model_name_or_path")) {
    json["base_model"] = config["base_model_name_or_path"];
  }
  if (const std::optional<RopeChoice> rope = recorded_rope(path)) {
    json["rope_scaling"] = text_of(*rope);
  }
  if (fs::exists(path / "state.json")) {
    json["checkpoint"] = read_json(path / "state.json");
  }
  return json;
}

[[nodiscard]] Json tokenize(const InspectArgs& args) {
  const Tokenizer tokenizer = Tokenizer::load(args.model);
  const File file(args.tokenize);
  if (file.size() > kLargestText) {
    fail(ErrorCode::kBadInput,
         "inspect",
         "{} is longer than {}, the most that --tokenize takes",
         file.name(),
         format_bytes(kLargestText));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  const std::vector<std::int32_t> tokens =
      tokenizer.encode(text, args.parse_special ? SpecialTokens::kParse : SpecialTokens::kAsText);
  print_output("{}\n", fmt::join(tokens, " "));
  return {{"tokens", tokens}};
}

}  // namespace

Outcome run_inspect(const std::vector<std::string>& arguments,
                    std::optional<std::filesystem::path>& json) {
  InspectArgs args;
  OptionSet options("inspect PATH [options]", "Shows a model, an adapter or a checkpoint");
  options.group("Input");
  options.add({"model", "PATH", "a model, or a directory with an adapter or a checkpoint"},
              args.model);
  options.allow_positional("model");
  options.add({"tokenize", "FILE", "print the token ids of a file instead"}, args.tokenize);
  options.add({"parse-special", "", "spellings of special tokens in it stand for them"},
              args.parse_special);
  add_common_options(options, args.common, json);
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  options.require("model");
  prepare(args.common, json);
  if (!args.tokenize.empty()) {
    return {.result = tokenize(args)};
  }
  const Json result = fs::exists(args.model / "adapter_config.json") ? inspect_adapter(args.model)
                                                                     : inspect_model(args.model);
  print_members(result);
  return {.result = result};
}

}  // namespace longtune::cli
