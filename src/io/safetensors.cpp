#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "io/json.h"

namespace longtune {
namespace {

using nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kHighestRank = 16;

struct Dtype {
  std::string_view name;
  std::int64_t bits;
};

constexpr std::array<Dtype, 19> kDtypes{{{"BOOL", 8},
                                         {"U8", 8},
                                         {"I8", 8},
                                         {"F8_E5M2", 8},
                                         {"F8_E4M3", 8},
                                         {"F8_E8M0", 8},
                                         {"F4", 4},
                                         {"F6_E2M3", 6},
                                         {"F6_E3M2", 6},
                                         {"I16", 16},
                                         {"U16", 16},
                                         {"F16", 16},
                                         {"BF16", 16},
                                         {"I32", 32},
                                         {"U32", 32},
                                         {"F32", 32},
                                         {"I64", 64},
                                         {"U64", 64},
                                         {"F64", 64}}};

const Dtype* find_dtype(std::string_view name) {
  const auto* found = std::find_if(
      kDtypes.begin(), kDtypes.end(), [&](const Dtype& dtype) { return dtype.name == name; });
  return found == kDtypes.end() ? nullptr : found;
}

// Nothing where a dimension is negative, or the size leaves 63 bits or is no whole byte.
std::optional<std::int64_t> bytes_of(const Dtype& dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bits = dtype.bits;
  for (const std::int64_t dim : shape) {
    const std::optional<std::int64_t> product = checked_mul(bits, dim);
    if (!product) {
      return std::nullopt;
    }
    bits = *product;
  }
  return bits % 8 == 0 ? std::optional(bits / 8) : std::nullopt;
}

class HeaderParser {
 public:
  explicit HeaderParser(const Reader& reader) : reader_(reader) {}

  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;

  void parse() {
    const std::string text = read_header();
    data_ = kLengthBytes + static_cast<std::int64_t>(text.size());
    const json header = parse_json(text, reader_.name());
    if (!header.is_object()) {
      bad("its header is a JSON {}, not an object", header.type_name());
    }
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        read_metadata(value);
      } else {
        tensors.push_back(read_tensor(name, value));
      }
    }
    check_cover();
  }

 private:
  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadInput,
         "safetensors",
         "{}: {}",
         reader_.name(),
         fmt::format(format, std::forward<Args>(args)...));
  }

  [[nodiscard]] std::string read_header() const {
    if (reader_.size() < kLengthBytes) {
      bad("has {} bytes; a header's length alone takes 8", reader_.size());
    }
    std::array<std::byte, kLengthBytes> bytes{};
    reader_.read_at(0, bytes);
    const auto length = std::bit_cast<std::uint64_t>(bytes);
    const auto room = static_cast<std::uint64_t>(reader_.size() - kLengthBytes);
    if (length > std::min(kLargestHeader, room)) {
      bad("claims a header of {} bytes, but the file has {} after its length and at most {} are "
          "read",
          length,
          room,
          kLargestHeader);
    }
    std::string text(length, '\0');
    reader_.read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
    return text;
  }

  void read_metadata(const json& value) {
    if (!value.is_object()) {
      bad("__metadata__ is a JSON {}, not an object", value.type_name());
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        bad("__metadata__ {} is no string", in_quotes(key));
      }
      metadata.emplace(key, text.get<std::string>());
    }
  }

  [[nodiscard]] SafetensorsTensor read_tensor(const std::string& name, const json& value) const {
    const JsonFields fields(value, fmt::format("{}: tensor {}", reader_.name(), in_quotes(name)));
    SafetensorsTensor tensor;
    tensor.name = name;
    tensor.dtype = fields.required_string("dtype");
    const Dtype* dtype = find_dtype(tensor.dtype);
    if (dtype == nullptr) {
      fail(ErrorCode::kUnsupported,
           "safetensors",
           "{} has the unknown dtype {}",
           fields.name(),
           in_quotes(tensor.dtype));
    }
    tensor.shape = read_list(fields, "shape", kHighestRank);
    const std::vector<std::int64_t> offsets = read_list(fields, "data_offsets", 2);
    const auto bytes = bytes_of(*dtype, tensor.shape);
    if (!bytes) {
      bad("tensor {} has an absurd size ({} of {})",
          in_quotes(name),
          fmt::join(tensor.shape, " x "),
          tensor.dtype);
    }
    place(tensor, offsets, *bytes);
    return tensor;
  }

  // A list of whole numbers from 0 on.
  std::vector<std::int64_t> read_list(const JsonFields& fields,
                                      const char* key,
                                      std::size_t longest) const {
    const json* value = fields.find(key);
    if (value == nullptr || !value->is_array() || value->size() > longest) {
      fail(ErrorCode::kBadInput,
           "safetensors",
           "{}: {} is no list of at most {} numbers",
           fields.name(),
           key,
           longest);
    }
    std::vector<std::int64_t> result;
    for (const json& number : *value) {
      if (!number.is_number_unsigned() ||
          number.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        fail(ErrorCode::kBadInput,
             "safetensors",
             "{}: {} holds something that is no size",
             fields.name(),
             key);
      }
      result.push_back(number.get<std::int64_t>());
    }
    return result;
  }

  void place(SafetensorsTensor& tensor,
             const std::vector<std::int64_t>& offsets,
             std::int64_t bytes) const {
    const std::int64_t data_bytes = reader_.size() - data_;
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
      bad("tensor {} claims bytes {} of the data, but the file has {} of them (is it truncated?)",
          in_quotes(tensor.name),
          fmt::join(offsets, " to "),
          data_bytes);
    }
    if (offsets[1] - offsets[0] != bytes) {
      bad("tensor {} has {} bytes, but {} of {} takes {}",
          in_quotes(tensor.name),
          offsets[1] - offsets[0],
          fmt::join(tensor.shape, " x "),
          tensor.dtype,
          bytes);
    }
    tensor.offset = data_ + offsets[0];
    tensor.bytes = bytes;
  }

  void check_cover() {
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    std::int64_t end = data_;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].offset < end) {
        bad("tensors {} and {} overlap",
            in_quotes(tensors[i - 1].name),
            in_quotes(tensors[i].name));
      }
      if (tensors[i].offset > end) {
        bad("bytes {} to {} belong to no tensor", end, tensors[i].offset);
      }
      end += tensors[i].bytes;
    }
    if (end != reader_.size()) {
      bad("bytes {} to {} belong to no tensor", end, reader_.size());
    }
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      return a.name < b.name;
    });
  }

  const Reader& reader_;
  std::int64_t data_ = 0;
};

}  // namespace

Safetensors Safetensors::parse(const Reader& reader) {
  HeaderParser parser(reader);
  parser.parse();
  Safetensors result;
  result.tensors_ = std::move(parser.tensors);
  result.metadata_ = std::move(parser.metadata);
  return result;
}

const SafetensorsTensor* Safetensors::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name, [](const auto& a, const auto& b) {
        return a.name < b;
      });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<SafetensorsTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  // Ordered, so that the header lists tensors as they lie.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::set<std::string> names;
  for (const SafetensorsTensor& tensor : tensors) {
    const Dtype* dtype = find_dtype(tensor.dtype);
    const auto bytes = dtype != nullptr ? bytes_of(*dtype, tensor.shape) : std::nullopt;
    const auto end = bytes ? checked_add(missing_, *bytes) : std::nullopt;
    if (!end || !names.insert(tensor.name).second) {
      fail(
          ErrorCode::kInvalidArgument,
          "safetensors",
          "cannot write tensor {} of {} {} to {}: its name comes twice, or no such type or size is",
          in_quotes(tensor.name),
          tensor.dtype,
          fmt::join(tensor.shape, " x "),
          path.string());
    }
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {missing_, *end}}};
    missing_ = *end;
  }
  std::string text = header.dump();
  // The data begins aligned to 8 bytes, as the format's own writer has it.
  text.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(text.size()), 8)), ' ');
  const auto length =
      std::bit_cast<std::array<std::byte, kLengthBytes>>(std::uint64_t{text.size()});
  file_.write(length);
  file_.write(text);
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  if (count > missing_) {
    fail(ErrorCode::kInvalidArgument,
         "safetensors",
         "{} bytes are written where {} are missing",
         count,
         missing_);
  }
  file_.write(bytes);
  missing_ -= count;
}

void SafetensorsWriter::finish() {
  if (missing_ != 0) {
    fail(ErrorCode::kInvalidArgument, "safetensors", "{} bytes have not been written", missing_);
  }
  file_.commit();
}

}  // namespace longtune
