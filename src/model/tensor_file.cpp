#include "model/tensor_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "device/arena.h"
#include "io/safetensors.h"

namespace longtune {
namespace {

constexpr std::int64_t kChunkValues = kMiB;

// Calls `body(first, count)` for the parts of `values` values.
template <class Body>
void in_chunks(std::int64_t values, const Body& body) {
  for (std::int64_t first = 0; first < values; first += kChunkValues) {
    body(first, std::min(kChunkValues, values - first));
  }
}

TensorView flat(const TensorView& tensor) {
  return tensor.reshaped({tensor.elements()});
}

std::vector<std::int64_t> shape_of(const TensorView& tensor) {
  return {tensor.shape.begin(), tensor.shape.begin() + tensor.rank};
}

void load_tensor(const File& file, const SafetensorsTensor& stored, const TensorView& target) {
  if (stored.shape != shape_of(target)) {
    fail(ErrorCode::kBadInput,
         "safetensors",
         "{}: {} has shape ({}), but ({}) is needed",
         file.name(),
         in_quotes(stored.name),
         fmt::join(stored.shape, ", "),
         fmt::join(shape_of(target), ", "));
  }
  const auto format = float_format(stored.dtype);
  if (!format) {
    fail(ErrorCode::kBadInput,
         "safetensors",
         "{}: {} is {}, not F32, F16 or BF16",
         file.name(),
         in_quotes(stored.name),
         stored.dtype);
  }
  const std::int64_t width = block_bytes(*format);
  std::vector<std::byte> bytes;
  std::vector<float> values;
  in_chunks(target.elements(), [&](std::int64_t first, std::int64_t count) {
    bytes.resize(count * width);
    values.resize(count);
    file.read_at(stored.offset + first * width, bytes);
    unpack(weight_view(*format, 1, count, bytes.data()), 0, 0, count, values.data());
    copy_to_device(flat(target).rows(first, count), values.data(), count * 4);
  });
}

}  // namespace

std::optional<WeightFormat> float_format(std::string_view dtype) {
  if (dtype == "F32") {
    return WeightFormat::kF32;
  }
  if (dtype == "F16") {
    return WeightFormat::kF16;
  }
  return dtype == "BF16" ? std::optional(WeightFormat::kBf16) : std::nullopt;
}

void save_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<SafetensorsTensor> header;
  for (const NamedTensor& named : tensors) {
    header.push_back({.name = named.name, .dtype = "F32", .shape = shape_of(named.tensor)});
  }
  SafetensorsWriter writer(path, std::move(header), {{"format", "pt"}});
  std::vector<float> values;
  for (const NamedTensor& named : tensors) {
    in_chunks(named.tensor.elements(), [&](std::int64_t first, std::int64_t count) {
      values.resize(count);
      copy_to_host(values.data(), flat(named.tensor).rows(first, count), count * 4);
      writer.write(std::as_bytes(std::span(values)));
    });
  }
  writer.finish();
}

void load_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  const File file(path);
  const Safetensors header = Safetensors::parse(file);
  std::set<std::string> known;
  for (const NamedTensor& named : tensors) {
    known.insert(named.name);
    const SafetensorsTensor* stored = header.find(named.name);
    if (stored == nullptr) {
      fail(ErrorCode::kBadInput,
           "safetensors",
           "{}: {} is missing",
           file.name(),
           in_quotes(named.name));
    }
    load_tensor(file, *stored, named.tensor);
  }
  for (const SafetensorsTensor& stored : header.tensors()) {
    if (!known.contains(stored.name)) {
      fail(ErrorCode::kBadInput,
           "safetensors",
           "{}: {} has no place in this model",
           file.name(),
           in_quotes(stored.name));
    }
  }
}

}  // namespace longtune
