#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace longtune {

/// The file name of each tensor's shard, from a parsed model.safetensors.index.json; `file` is what
/// messages call it. Throws Error kBadInput where there is no map of names to names, or where a
/// shard's name is no plain one: shards lie beside their index, and a name that leads elsewhere is
/// not followed.
[[nodiscard]] std::map<std::string, std::string> parse_shard_index(const nlohmann::json& json,
                                                                   const std::string& file);

}  // namespace longtune
