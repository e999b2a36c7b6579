#include <span>

#include "expect_refusal.h"
#include "io/reader.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const longtune::MemoryReader reader("fuzz", std::as_bytes(std::span(data, size)));
  longtune::expect_refusal([&] {
    const auto file = longtune::Safetensors::parse(reader);
    for (const auto& tensor : file.tensors()) {
      // What the header promises can be read.
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
      reader.read_at(tensor.offset, bytes);
    }
  });
  return 0;
}
