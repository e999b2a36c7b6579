#include "model/shard_index.h"

#include "base/error.h"
#include "base/text.h"
#include "io/json.h"

namespace longtune {
namespace {

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

std::map<std::string, std::string> parse_shard_index(const nlohmann::json& json,
                                                     const std::string& file) {
  const JsonFields fields(json, file);
  const nlohmann::json* map = fields.find("weight_map");
  if (map == nullptr) {
    fail(ErrorCode::kBadInput, "model", "{}: lacks 'weight_map'", file);
  }
  const JsonFields weights(*map, file + ": weight_map");
  std::map<std::string, std::string> result;
  for (const auto& [tensor, unused] : map->items()) {
    const std::string shard = weights.required_string(tensor);
    if (!is_plain_name(shard)) {
      fail(ErrorCode::kBadInput,
           "model",
           "{}: shard {} is no plain file name",
           file,
           in_quotes(shard));
    }
    result.emplace(tensor, shard);
  }
  return result;
}

}  // namespace longtune
