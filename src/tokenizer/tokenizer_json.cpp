#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "io/json.h"
#include "tokenizer/definition.h"
#include "tokenizer/definition_builder.h"
#include "tokenizer/json_view.h"
#include "tokenizer/pre_tokenizer.h"

namespace longtune {
namespace {

constexpr char kWhere[] = "tokenizer";

[[noreturn]] void unsupported(const JsonView& at, const std::string& what) {
  fail(ErrorCode::kUnsupported, kWhere, "{}: {} is not supported", at.where(), what);
}

/// A component, or the components of a Sequence of them, whose list stands under `list`. None where
/// the component is null.
std::vector<JsonView> components(const JsonView& parent, const char* key, const char* list) {
  if (!parent.has(key)) {
    return {};
  }
  const JsonView component = parent.at(key);
  if (component.at("type").string() != "Sequence") {
    return {component};
  }
  const JsonView sequence = component.at(list);
  std::vector<JsonView> result;
  for (std::size_t i = 0; i < sequence.array_size(); ++i) {
    result.push_back(sequence.at(i));
  }
  return result;
}

std::string type_of(const JsonView& component) {
  return component.at("type").string();
}

bool parse_normalizer(const JsonView& root) {
  bool nfc = false;
  for (const JsonView& component : components(root, "normalizer", "normalizers")) {
    if (type_of(component) != "NFC") {
      unsupported(component, "normalizer " + in_quotes(type_of(component)));
    }
    nfc = true;
  }
  return nfc;
}

bool uses_regex(const JsonView& byte_level) {
  if (byte_level.boolean_or("add_prefix_space", true)) {
    unsupported(byte_level, "add_prefix_space");
  }
  return byte_level.boolean_or("use_regex", true);
}

PreTokenizerKind parse_split(const JsonView& split) {
  const JsonView pattern = split.at("pattern");
  if (!pattern.has("Regex")) {
    unsupported(pattern, "a pattern other than Regex");
  }
  const std::string regex = pattern.at("Regex").string();
  const std::optional<PreTokenizerKind> kind = pre_tokenizer_of_regex(regex);
  if (!kind) {
    unsupported(pattern, "the regex " + in_quotes(regex));
  }
  const std::string behavior = split.at("behavior").string();
  if (behavior != "Isolated" || split.boolean_or("invert", false)) {
    unsupported(split, fmt::format("behavior {} or an inverted split", in_quotes(behavior)));
  }
  return *kind;
}

PreTokenizerKind parse_pre_tokenizer(const JsonView& root) {
  const auto parts = components(root, "pre_tokenizer", "pretokenizers");
  std::string types;
  for (const JsonView& part : parts) {
    types += (types.empty() ? "" : " + ") + type_of(part);
  }
  if (types == "ByteLevel" && uses_regex(parts[0])) {
    return PreTokenizerKind::kGpt2;
  }
  if (types == "Split + ByteLevel" && !uses_regex(parts[1])) {
    return parse_split(parts[0]);
  }
  if (types == "Digits + ByteLevel" && parts[0].boolean_or("individual_digits", false) &&
      uses_regex(parts[1])) {
    return PreTokenizerKind::kSmolLm;
  }
  unsupported(root,
              fmt::format("pre_tokenizer {} with these settings",
                          types.empty() ? "null" : in_quotes(types)));
}

void check_decoder(const JsonView& root) {
  const auto parts = components(root, "decoder", "decoders");
  if (parts.size() != 1 || type_of(parts[0]) != "ByteLevel") {
    unsupported(root, "a decoder other than ByteLevel");
  }
}

/// The BOS token that the post-processor puts before a text, if any. `encode` adds no such tokens
/// itself; but one that adds others would be ignored in silence.
std::optional<std::string> parse_post_processor(const JsonView& root) {
  std::optional<std::string> bos;
  for (const JsonView& part : components(root, "post_processor", "processors")) {
    if (type_of(part) == "ByteLevel") {
      continue;  // trims offsets, which we do not report
    }
    if (type_of(part) != "TemplateProcessing") {
      unsupported(part, "post_processor " + in_quotes(type_of(part)));
    }
    const JsonView single = part.at("single");
    const std::size_t count = single.array_size();
    if (count == 0 || count > 2 || !single.at(count - 1).has("Sequence") ||
        (count == 2 && !single.at(std::size_t{0}).has("SpecialToken"))) {
      unsupported(single, "a template other than [BOS] text");
    }
    if (count == 2) {
      bos = single.at(std::size_t{0}).at("SpecialToken").at("id").string();
    }
  }
  return bos;
}

AddedToken parse_added_token(const JsonView& entry, std::int32_t id) {
  AddedToken token;
  token.id = id;
  token.content = entry.at("content").string();
  token.special = entry.boolean_or("special", false);
  token.lstrip = entry.boolean_or("lstrip", false);
  token.rstrip = entry.boolean_or("rstrip", false);
  token.single_word = entry.boolean_or("single_word", false);
  token.normalized = entry.boolean_or("normalized", !token.special);
  if (token.content.empty()) {
    fail(ErrorCode::kBadInput, kWhere, "{}: an added token is empty", entry.where());
  }
  return token;
}

/// In the order of their ids, as the reference adds them.
std::vector<AddedToken> parse_added_tokens(const JsonView& root, const JsonView& config) {
  std::vector<AddedToken> tokens;
  if (root.has("added_tokens")) {
    const JsonView list = root.at("added_tokens");
    for (std::size_t i = 0; i < list.array_size(); ++i) {
      tokens.push_back(parse_added_token(list.at(i), list.at(i).at("id").index()));
    }
  }
  if (config.has("added_tokens_decoder")) {
    const JsonView map = config.at("added_tokens_decoder");
    map.expect_object();
    for (const auto& [key, value] : map.json().items()) {
      const bool digits = !key.empty() && key.size() < 10 &&
                          key.find_first_not_of("0123456789") == std::string::npos;
      if (!digits) {
        fail(
            ErrorCode::kBadInput, kWhere, "{} has {}, which is no id", map.where(), in_quotes(key));
      }
      tokens.push_back(parse_added_token(map.at(key.c_str()), std::stoi(key)));
    }
  }
  std::stable_sort(
      tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return tokens;
}

void check_model(const JsonView& model) {
  model.expect_object();
  const std::string type = model.string_or("type", model.has("merges") ? "BPE" : "unknown");
  if (type != "BPE") {
    unsupported(model, in_quotes(type) + " (only byte-level BPE is)");
  }
  if (model.boolean_or("byte_fallback", false)) {
    unsupported(model, "byte_fallback (only byte-level BPE is)");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string_or(key, "").empty()) {
      unsupported(model, fmt::format("{} {}", key, in_quotes(model.at(key).string())));
    }
  }
  if (model.has("dropout") && model.at("dropout").json() != 0.0) {
    unsupported(model, "dropout, which makes tokens random,");
  }
}

/// "left right", as in merges.txt, or [left, right].
void parse_merge(const JsonView& merges, std::size_t index, DefinitionBuilder& builder) {
  const nlohmann::json& merge = merges.json()[index];
  if (merge.is_string()) {
    const auto& line = merge.get_ref<const std::string&>();
    if (line.rfind("#version", 0) != 0) {  // left in by some converters of merges.txt
      builder.add_merge(line);
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    builder.add_merge(merge[0].get_ref<const std::string&>(),
                      merge[1].get_ref<const std::string&>());
  } else {
    fail(ErrorCode::kBadInput, kWhere, "{} must be two tokens", merges.at(index).where());
  }
}

void parse_merges(const JsonView& model, DefinitionBuilder& builder) {
  const JsonView merges = model.at("merges");
  const std::size_t count = merges.array_size();
  builder.definition().merges.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    parse_merge(merges, i, builder);
  }
}

void parse_model(const JsonView& model, DefinitionBuilder& builder) {
  const JsonView vocabulary = model.at("vocab");
  for (const auto& [spelling, id] : vocabulary.json().items()) {
    builder.add_model_token(spelling, vocabulary.member(spelling, id).index());
  }
  parse_merges(model, builder);
  TokenizerDefinition& definition = builder.definition();
  definition.ignore_merges = model.boolean_or("ignore_merges", false);
  definition.fuse_unknown = model.boolean_or("fuse_unk", false);
  const std::string unknown = model.string_or("unk_token", "");
  if (!unknown.empty()) {
    definition.unknown = builder.find(unknown);
    if (!definition.unknown) {
      fail(ErrorCode::kBadInput,
           kWhere,
           "{}: unk_token {} is no token",
           model.where(),
           in_quotes(unknown));
    }
  }
}

/// A token that the configuration names, as a string or as an object with its content.
std::optional<std::int32_t> named_token(const JsonView& config,
                                        const char* key,
                                        const DefinitionBuilder& builder) {
  if (!config.has(key)) {
    return std::nullopt;
  }
  const JsonView value = config.at(key);
  const std::string name = value.json().is_object() ? value.at("content").string() : value.string();
  const std::optional<std::int32_t> id = builder.find(name);
  if (!id) {
    fail(ErrorCode::kBadInput, kWhere, "{} {} is no token", value.where(), in_quotes(name));
  }
  return id;
}

void parse_ends(const JsonView& root, const JsonView& config, DefinitionBuilder& builder) {
  TokenizerDefinition& definition = builder.definition();
  definition.bos = named_token(config, "bos_token", builder);
  definition.eos = named_token(config, "eos_token", builder);
  const std::optional<std::string> processor_bos = parse_post_processor(root);
  if (processor_bos && !definition.bos) {
    definition.bos = builder.find(*processor_bos);
  }
  definition.adds_bos = config.boolean_or("add_bos_token", processor_bos.has_value());
  if (definition.adds_bos && !definition.bos) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: texts are to begin with a BOS token, but none is named",
         definition.source);
  }
}

}  // namespace

TokenizerDefinition parse_tokenizer_json(std::string_view tokenizer_json,
                                         std::string_view tokenizer_config,
                                         const std::string& source) {
  const nlohmann::json json = parse_json(tokenizer_json, source);
  const std::string config_source = source + " (tokenizer_config.json)";
  const nlohmann::json config_json = tokenizer_config.empty()
                                         ? nlohmann::json::object()
                                         : parse_json(tokenizer_config, config_source);
  const JsonView root(json, source);
  const JsonView config(config_json, config_source);
  config.expect_object();

  const JsonView model = root.at("model");
  check_model(model);
  const JsonView vocabulary = model.at("vocab");
  vocabulary.expect_object();
  const std::vector<AddedToken> added = parse_added_tokens(root, config);
  std::set<std::string_view> all_new;
  for (const AddedToken& token : added) {
    if (!vocabulary.json().contains(token.content)) {
      all_new.insert(token.content);
    }
  }
  DefinitionBuilder builder(source, vocabulary.json().size() + all_new.size());
  parse_model(model, builder);
  for (const AddedToken& token : added) {
    builder.add_added_token(token);
  }
  builder.definition().nfc = parse_normalizer(root);
  builder.definition().pre_tokenizer = parse_pre_tokenizer(root);
  check_decoder(root);
  parse_ends(root, config, builder);
  return builder.finish();
}

}  // namespace longtune
