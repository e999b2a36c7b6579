#include "model/file_source.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace longtune {

void FileSource::add(SourceTensor tensor, Place place) {
  tensors_.push_back(std::move(tensor));
  places_.push_back(place);
}

std::size_t FileSource::index_of(const std::string& name) const {
  const SourceTensor* tensor = find(name);
  if (tensor == nullptr) {
    fail(ErrorCode::kBadInput, "model", "there is no tensor {}", in_quotes(name));
  }
  return static_cast<std::size_t>(tensor - tensors_.data());
}

const std::string& FileSource::file_of(const std::string& name) const {
  return places_[index_of(name)].file->name();
}

void FileSource::read_rows(const std::string& name,
                           std::int64_t first,
                           std::int64_t count,
                           std::span<std::byte> target) const {
  const std::size_t index = index_of(name);
  const SourceTensor& tensor = tensors_[index];
  const std::int64_t bytes = row_bytes(tensor.format, tensor.K);
  if (first < 0 || count < 0 || count > tensor.N - first ||
      static_cast<std::int64_t>(target.size()) != count * bytes) {
    fail(ErrorCode::kInvalidArgument,
         "model",
         "rows {} + {} of tensor {}, which has {} of {} bytes, do not fit a target of {} bytes",
         first,
         count,
         in_quotes(name),
         tensor.N,
         bytes,
         target.size());
  }
  const Place& place = places_[index];
  if (!place.interleaved) {
    place.file->read_at(place.offset + first * bytes, target);
  } else if (tensor.N > 1) {
    read_interleaved({place, bytes, first, count}, target);
  } else if (count == 1) {
    read_interleaved({place, bytes / tensor.K, 0, tensor.K}, target);
  }
}

// Row h * D + s * D/2 + i in Hugging Face's order (s: which half of a head) stands at row
// h * D + 2i + s of the file. A head is read whole: its rows in either order are the same ones.
void FileSource::read_interleaved(const Rows& rows, std::span<std::byte> target) const {
  const std::int64_t D = config_.D;
  std::vector<std::byte> head(static_cast<std::size_t>(D * rows.bytes));
  std::int64_t row = rows.first;
  while (row < rows.first + rows.count) {
    const std::int64_t begin = row / D * D;
    const std::int64_t end = std::min(begin + D, rows.first + rows.count);
    rows.place.file->read_at(rows.place.offset + begin * rows.bytes, head);
    for (; row < end; ++row) {
      const std::int64_t half = (row - begin) / (D / 2);
      const std::int64_t i = (row - begin) % (D / 2);
      std::memcpy(target.data() + (row - rows.first) * rows.bytes,
                  head.data() + (2 * i + half) * rows.bytes,
                  static_cast<std::size_t>(rows.bytes));
    }
  }
}

}  // namespace longtune
