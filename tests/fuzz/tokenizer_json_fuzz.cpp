#include "exercise_tokenizer.h"
#include "expect_refusal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  longtune::expect_refusal([&] {
    longtune::exercise(longtune::Tokenizer::from_json(
        {reinterpret_cast<const char*>(data), size}, "", "fuzz.json"));
  });
  return 0;
}
