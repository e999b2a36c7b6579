#include "expect_refusal.h"
#include "train/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  longtune::Document document{.path = "fuzz.jsonl", .line = 1};
  longtune::expect_refusal([&] {
    longtune::parse_json_line({reinterpret_cast<const char*>(data), size}, document);
  });
  return 0;
}
