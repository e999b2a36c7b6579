#include "expect_refusal.h"
#include "io/json.h"
#include "model/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  longtune::expect_refusal([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto config = longtune::parse_hf_config(longtune::parse_json(text, "fuzz"), "fuzz");
    // A configuration that was accepted has frequencies, unless its heads are larger than any.
    if (config.D <= 4096) {
      static_cast<void>(longtune::rope_frequencies(config.rope, config.D));
    }
  });
  return 0;
}
