#include "tokenizer/definition_builder.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace longtune {
namespace {

constexpr char kWhere[] = "tokenizer";

}  // namespace

DefinitionBuilder::DefinitionBuilder(std::string source, std::size_t capacity) : taken_(capacity) {
  definition_.source = std::move(source);
  definition_.spellings.resize(capacity);
  definition_.in_model.resize(capacity);
  ids_.reserve(capacity);
}

void DefinitionBuilder::claim(const std::string& spelling, std::int32_t id) {
  const auto at = static_cast<std::size_t>(id);
  if (id < 0 || at >= taken_.size()) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: token {} has id {}, but there are only {} tokens",
         definition_.source,
         in_quotes(spelling),
         id,
         taken_.size());
  }
  if (taken_[at]) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: tokens {} and {} both have id {}",
         definition_.source,
         in_quotes(definition_.spellings[at]),
         in_quotes(spelling),
         id);
  }
  taken_[at] = true;
  definition_.spellings[at] = spelling;
}

void DefinitionBuilder::add_model_token(std::string spelling, std::int32_t id) {
  claim(spelling, id);
  definition_.in_model[static_cast<std::size_t>(id)] = true;
  const auto [it, is_new] = ids_.try_emplace(std::move(spelling), id);
  if (!is_new) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: token {} has both id {} and id {}",
         definition_.source,
         in_quotes(it->first),
         it->second,
         id);
  }
}

void DefinitionBuilder::add_unused_token(std::string spelling, std::int32_t id) {
  claim(spelling, id);
}

void DefinitionBuilder::add_added_token(AddedToken token) {
  const std::optional<std::int32_t> known = find(token.content);
  if (!known) {
    claim(token.content, token.id);
    ids_.emplace(token.content, token.id);
  } else if (*known != token.id) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: added token {} has id {}, but is token {} already",
         definition_.source,
         in_quotes(token.content),
         token.id,
         *known);
  }
  auto& added = definition_.added;
  const auto [place, is_new] = places_.try_emplace(token.id, added.size());
  if (is_new) {
    added.push_back(std::move(token));
  } else {
    added[place->second] = std::move(token);
  }
}

std::int32_t DefinitionBuilder::merge_part(std::string_view spelling) const {
  const std::optional<std::int32_t> id = find(spelling);
  if (!id) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: merge {} has {}, which is no token",
         definition_.source,
         definition_.merges.size(),
         in_quotes(spelling));
  }
  return *id;
}

void DefinitionBuilder::add_merge(std::string_view left, std::string_view right) {
  const std::string whole = std::string(left).append(right);
  definition_.merges.push_back({merge_part(left), merge_part(right), merge_part(whole)});
}

void DefinitionBuilder::add_merge(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: merge {} is {}, not two tokens with a space between",
         definition_.source,
         definition_.merges.size(),
         in_quotes(line));
  }
  add_merge(line.substr(0, space), line.substr(space + 1));
}

std::optional<std::int32_t> DefinitionBuilder::find(std::string_view spelling) const {
  const auto it = ids_.find(spelling);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

TokenizerDefinition DefinitionBuilder::finish() {
  const auto gap = std::find(taken_.begin(), taken_.end(), false);
  if (gap != taken_.end()) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: no token has id {}, though there are {} tokens",
         definition_.source,
         gap - taken_.begin(),
         taken_.size());
  }
  return std::move(definition_);
}

}  // namespace longtune
