// The small JSON files beside weights: adapter_config.json and model.safetensors.index.json.

#include "expect_refusal.h"
#include "io/json.h"
#include "model/adapter.h"
#include "model/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  longtune::expect_refusal([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const nlohmann::json json = longtune::parse_json(text, "fuzz");
    longtune::expect_refusal([&] { longtune::check(longtune::parse_lora_config(json, "fuzz")); });
    longtune::expect_refusal([&] { (void)longtune::parse_shard_index(json, "fuzz"); });
  });
  return 0;
}
