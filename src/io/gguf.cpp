#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "io/cursor.h"

namespace longtune {
namespace {

// Headers of real models take a few MiB (the vocabulary); what claims more than this is damaged,
// and would otherwise be read into memory whole.
constexpr std::int64_t kLargestHeader = 512 * kMiB;
constexpr std::uint64_t kMostKeys = 100'000;
constexpr std::uint64_t kMostTensors = 1'000'000;
constexpr std::uint64_t kLongestName = 65'535;
constexpr std::int64_t kDefaultAlignment = 32;

struct TensorType {
  std::uint32_t number = 0;
  const char* name = nullptr;
  std::int64_t block_values = 0;  // 0: a type we only know by name
  std::int64_t block_bytes = 0;
};

constexpr std::array<TensorType, 34> kTensorTypes{{
    {0, "F32", 1, 4},   {1, "F16", 1, 2}, {2, "Q4_0", 32, 18}, {3, "Q4_1", 32, 20},
    {6, "Q5_0"},        {7, "Q5_1"},      {8, "Q8_0", 32, 34}, {9, "Q8_1"},
    {10, "Q2_K"},       {11, "Q3_K"},     {12, "Q4_K"},        {13, "Q5_K"},
    {14, "Q6_K"},       {15, "Q8_K"},     {16, "IQ2_XXS"},     {17, "IQ2_XS"},
    {18, "IQ3_XXS"},    {19, "IQ1_S"},    {20, "IQ4_NL"},      {21, "IQ3_S"},
    {22, "IQ2_S"},      {23, "IQ4_XS"},   {24, "I8"},          {25, "I16"},
    {26, "I32"},        {27, "I64"},      {28, "F64"},         {29, "IQ1_M"},
    {30, "BF16", 1, 2}, {34, "TQ1_0"},    {35, "TQ2_0"},       {39, "MXFP4"},
    {40, "NVFP4"},      {41, "Q1_0"},
}};

const TensorType* find_tensor_type(std::uint32_t number) {
  for (const TensorType& type : kTensorTypes) {
    if (type.number == number) {
      return &type;
    }
  }
  return nullptr;
}

}  // namespace

std::string gguf_tensor_type_name(std::uint32_t type) {
  const TensorType* known = find_tensor_type(type);
  return known != nullptr ? known->name : fmt::format("type {}", type);
}

class GgufParser {
 public:
  explicit GgufParser(const Reader& reader)
      : reader_(reader), cursor_(reader, std::min(reader.size(), kLargestHeader)) {
    result_.file_ = reader.name();
  }

  Gguf parse() {
    read_magic();
    const auto tensor_count = cursor_.read<std::uint64_t>("the number of tensors");
    const auto key_count = cursor_.read<std::uint64_t>("the number of keys");
    // A key takes at least 13 bytes (length, type, value), a tensor's entry 32.
    check_count(key_count, kMostKeys, 13, "metadata keys");
    for (std::uint64_t i = 0; i < key_count; ++i) {
      read_key_value();
    }
    check_count(tensor_count, kMostTensors, 32, "tensors");
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
      result_.tensors_.push_back(read_tensor());
    }
    place_tensors();
    return std::move(result_);
  }

 private:
  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadInput,
         "gguf",
         "{}: {}",
         reader_.name(),
         fmt::format(format, std::forward<Args>(args)...));
  }

  template <class... Args>
  [[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kUnsupported,
         "gguf",
         "{}: {}",
         reader_.name(),
         fmt::format(format, std::forward<Args>(args)...));
  }

  void read_magic() {
    if (cursor_.read_string(std::min<std::int64_t>(4, cursor_.remaining()), "the magic") !=
        "GGUF") {
      bad("is no GGUF file (its first bytes are not 'GGUF')");
    }
    const auto version = cursor_.read<std::uint32_t>("the version");
    if (version != 0 && (version & 0xFFFFU) == 0) {
      unsupported("is a big-endian GGUF file; only little-endian ones are read");
    }
    if (version != 2 && version != 3) {
      unsupported("has GGUF version {}; versions 2 and 3 are read", version);
    }
  }

  void check_count(std::uint64_t count,
                   std::uint64_t most,
                   std::int64_t least_bytes,
                   const char* what) const {
    const auto room = static_cast<std::uint64_t>(cursor_.remaining() / least_bytes);
    if (count > std::min(most, room)) {
      bad("claims {} {}, but at most {} can be there", count, what, std::min(most, room));
    }
  }

  std::string read_name(const char* what) {
    const auto length = cursor_.read<std::uint64_t>(what);
    if (length > kLongestName) {
      bad("{} at byte {} claims {} bytes; at most {} are read",
          what,
          cursor_.offset(),
          length,
          kLongestName);
    }
    return cursor_.read_string(length, what);
  }

  void read_key_value() {
    const std::string key = read_name("a metadata key");
    const GgufType type = read_type(key);
    GgufValue value;
    if (type == GgufType::kArray) {
      value.is_array_ = true;
      value.element_type_ = read_type(key);
      if (value.element_type_ == GgufType::kArray) {
        unsupported("key {} is an array of arrays", in_quotes(key));
      }
      const auto count = cursor_.read<std::uint64_t>("an array's length");
      const std::int64_t least = std::max<std::int64_t>(size_of(value.element_type_), 1);
      if (count > static_cast<std::uint64_t>(cursor_.remaining() / least)) {
        bad("key {} claims {} elements, more than the header can hold", in_quotes(key), count);
      }
      value.size_ = static_cast<std::int64_t>(count);
    } else {
      value.element_type_ = type;
      value.size_ = 1;
    }
    read_elements(value);
    if (!result_.metadata_.emplace(key, std::move(value)).second) {
      bad("has key {} twice", in_quotes(key));
    }
  }

  GgufType read_type(const std::string& key) {
    const auto type = cursor_.read<std::uint32_t>("a value's type");
    if (type > static_cast<std::uint32_t>(GgufType::kF64)) {
      bad("key {} has a value of unknown type {}", in_quotes(key), type);
    }
    return static_cast<GgufType>(type);
  }

  void read_elements(GgufValue& value) {
    if (value.element_type_ != GgufType::kString) {
      const auto bytes = static_cast<std::uint64_t>(value.size_ * size_of(value.element_type_));
      value.bytes_ = cursor_.read_string(bytes, "a metadata value");
      return;
    }
    // Each string takes 8 bytes at least, so that a false count ends at the end of the header and
    // `ends_` grows no larger than it. All offsets fit 32 bits: the header is below 512 MiB.
    for (std::int64_t i = 0; i < value.size_; ++i) {
      const auto length = cursor_.read<std::uint64_t>("a string's length");
      value.bytes_ += cursor_.read_string(length, "a string");
      value.ends_.push_back(static_cast<std::uint32_t>(value.bytes_.size()));
    }
  }

  GgufTensor read_tensor() {
    GgufTensor tensor;
    tensor.name = read_name("a tensor's name");
    const auto rank = cursor_.read<std::uint32_t>("a tensor's rank");
    if (rank < 1 || rank > 4) {
      bad("tensor {} has {} dimensions; 1 to 4 are read", in_quotes(tensor.name), rank);
    }
    for (std::uint32_t axis = 0; axis < rank; ++axis) {
      const auto dim = cursor_.read<std::int64_t>("a tensor's dimension");
      if (dim < 1) {
        bad("tensor {} has a dimension of {}", in_quotes(tensor.name), dim);
      }
      tensor.dims.push_back(dim);
    }
    tensor.type = cursor_.read<std::uint32_t>("a tensor's type");
    tensor.offset = cursor_.read<std::int64_t>("a tensor's offset");
    const TensorType* type = find_tensor_type(tensor.type);
    if (type != nullptr && type->block_values > 0) {
      tensor.bytes = bytes_of(tensor, *type);
    }
    return tensor;
  }

  [[nodiscard]] std::int64_t bytes_of(const GgufTensor& tensor, const TensorType& type) const {
    if (tensor.dims.front() % type.block_values != 0) {
      bad("tensor {} has rows of {} values, no multiple of the {} of a {} block",
          in_quotes(tensor.name),
          tensor.dims.front(),
          type.block_values,
          type.name);
    }
    std::optional<std::int64_t> bytes =
        checked_mul(tensor.dims.front() / type.block_values, type.block_bytes);
    for (std::size_t axis = 1; axis < tensor.dims.size() && bytes; ++axis) {
      bytes = checked_mul(*bytes, tensor.dims[axis]);
    }
    if (!bytes) {
      bad("tensor {} has an absurd size ({})",
          in_quotes(tensor.name),
          fmt::join(tensor.dims, " x "));
    }
    return *bytes;
  }

  [[nodiscard]] std::int64_t alignment() const {
    const std::int64_t value = result_.integer("general.alignment").value_or(kDefaultAlignment);
    if (value < 1 || value > kMiB || !std::has_single_bit(static_cast<std::uint64_t>(value))) {
      bad("general.alignment is {}; it must be a power of two", value);
    }
    return value;
  }

  // Turns offsets into the data section into offsets into the file, and checks them.
  void place_tensors() {
    const std::int64_t step = alignment();
    const std::int64_t data = round_up(cursor_.offset(), step);
    for (GgufTensor& tensor : result_.tensors_) {
      if (tensor.offset < 0 || tensor.offset % step != 0) {
        bad("tensor {} has offset {}, no multiple of the alignment {}",
            in_quotes(tensor.name),
            tensor.offset,
            step);
      }
      const auto begin = checked_add(data, tensor.offset);
      const auto end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
      if (!end || *end > reader_.size()) {
        bad("tensor {} ({} bytes at byte {} of the data) goes past the end of the file's {} bytes",
            in_quotes(tensor.name),
            tensor.bytes,
            tensor.offset,
            reader_.size());
      }
      tensor.offset = *begin;
    }
    check_apart();
  }

  void check_apart() const {
    std::vector<const GgufTensor*> order;
    std::vector<std::string_view> names;
    for (const GgufTensor& tensor : result_.tensors_) {
      order.push_back(&tensor);
      names.push_back(tensor.name);
    }
    std::sort(names.begin(), names.end());
    const auto twin = std::adjacent_find(names.begin(), names.end());
    if (twin != names.end()) {
      bad("has tensor {} twice", in_quotes(*twin));
    }
    std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return a->offset < b->offset;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
        bad("tensors {} and {} overlap", in_quotes(order[i - 1]->name), in_quotes(order[i]->name));
      }
    }
  }

  const Reader& reader_;
  Cursor cursor_;
  Gguf result_;
};

Gguf Gguf::parse(const Reader& reader) {
  return GgufParser(reader).parse();
}

}  // namespace longtune
