#include <span>

#include "exercise_tokenizer.h"
#include "expect_refusal.h"
#include "io/gguf.h"
#include "io/reader.h"
#include "model/gguf_source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const longtune::MemoryReader reader("fuzz", std::as_bytes(std::span(data, size)));
  longtune::expect_refusal([&] {
    const auto file = longtune::Gguf::parse(reader);
    for (const auto& tensor : file.tensors()) {
      // What the header promises can be read.
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
      reader.read_at(tensor.offset, bytes);
    }
    longtune::expect_refusal([&] { static_cast<void>(longtune::parse_gguf_config(file, reader)); });
    longtune::exercise(longtune::Tokenizer::from_gguf(file));
  });
  return 0;
}
