// Any bytes as text: what a tokenizer that lacks no byte makes of them decodes to the same text.

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/normalize.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace longtune {
namespace {

using nlohmann::json;

constexpr char kLlama3[] =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";

json sequence(const json& first, bool use_regex) {
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", use_regex}};
  return {{"type", "Sequence"}, {"pretokenizers", {first, byte_level}}};
}

/// Bytes, a few merges that chain, and a special token.
Tokenizer make(const json& pre_tokenizer, const json& normalizer) {
  json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[spell_byte(static_cast<std::uint8_t>(byte))] = byte;
  }
  const std::string space = spell_byte(' ');
  json merges;
  for (const auto& [left, right] : {std::pair<std::string, std::string>{space, space},
                                    {"a", "a"},
                                    {"aa", "aa"},
                                    {space, "a"},
                                    {space + "a", "aa"}}) {
    merges.push_back({left, right});
    vocabulary[left + right] = vocabulary.size();
  }
  const json special = {{"id", vocabulary.size()}, {"content", "<a>"}, {"special", true}};
  const json tokenizer = {
      {"added_tokens", {special}},
      {"normalizer", normalizer},
      {"pre_tokenizer", pre_tokenizer},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}},
  };
  return Tokenizer::from_json(tokenizer.dump(), "", "fuzz");
}

void check(const Tokenizer& tokenizer, std::string_view text, std::string_view expected) {
  for (const auto special : {SpecialTokens::kAsText, SpecialTokens::kParse}) {
    if (tokenizer.decode(tokenizer.encode(text, special), false) != expected) {
      std::abort();
    }
  }
}

}  // namespace
}  // namespace longtune

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longtune;
  static const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kLlama3}}}, {"behavior", "Isolated"}};
  static const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  static const Tokenizer smollm = make(sequence(digits, true), nullptr);
  static const Tokenizer llama3 = make(sequence(split, false), nullptr);
  static const Tokenizer nfc = make(sequence(split, false), {{"type", "NFC"}});

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string repaired;
  const std::string_view valid = repair_utf8(text, repaired);
  check(smollm, text, valid);
  check(llama3, text, valid);
  if (valid.find("<a>") == std::string_view::npos) {  // what stands before and after it is apart
    std::string normal;
    check(nfc, text, normalize_nfc(valid, normal));
  }
  return 0;
}
