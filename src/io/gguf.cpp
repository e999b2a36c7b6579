#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

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
  std::uint32_t number;
  const char* name;
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

// Bytes of one number; 0 for strings and arrays.
std::int64_t size_of(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool is_integer(GgufType type) {
  return size_of(type) > 0 && type != GgufType::kF32 && type != GgufType::kF64 &&
         type != GgufType::kBool;
}

template <class T>
T number_at(const std::string& bytes, std::int64_t index) {
  T value{};
  std::memcpy(&value, bytes.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

std::string describe(const GgufValue& value) {
  return value.is_array() ? fmt::format("an array of {}", name_of(value.element_type()))
                          : fmt::format("of type {}", name_of(value.type()));
}

}  // namespace

const char* name_of(GgufType type) {
  constexpr std::array<const char*, 13> kNames{"u8",
                                               "i8",
                                               "u16",
                                               "i16",
                                               "u32",
                                               "i32",
                                               "f32",
                                               "bool",
                                               "string",
                                               "array",
                                               "u64",
                                               "i64",
                                               "f64"};
  const auto index = static_cast<std::size_t>(type);
  return index < kNames.size() ? kNames[index] : "?";
}

std::string gguf_tensor_type_name(std::uint32_t type) {
  const TensorType* known = find_tensor_type(type);
  return known != nullptr ? known->name : fmt::format("type {}", type);
}

std::optional<std::int64_t> GgufValue::integer(std::int64_t index) const {
  switch (element_type_) {
    case GgufType::kU8:
      return number_at<std::uint8_t>(bytes_, index);
    case GgufType::kI8:
      return number_at<std::int8_t>(bytes_, index);
    case GgufType::kU16:
      return number_at<std::uint16_t>(bytes_, index);
    case GgufType::kI16:
      return number_at<std::int16_t>(bytes_, index);
    case GgufType::kU32:
      return number_at<std::uint32_t>(bytes_, index);
    case GgufType::kI32:
      return number_at<std::int32_t>(bytes_, index);
    case GgufType::kU64: {
      const auto value = number_at<std::uint64_t>(bytes_, index);
      constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
      return value <= static_cast<std::uint64_t>(kLargest)
                 ? std::optional(static_cast<std::int64_t>(value))
                 : std::nullopt;
    }
    case GgufType::kI64:
      return number_at<std::int64_t>(bytes_, index);
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::number(std::int64_t index) const {
  if (element_type_ == GgufType::kF32) {
    return number_at<float>(bytes_, index);
  }
  if (element_type_ == GgufType::kF64) {
    return number_at<double>(bytes_, index);
  }
  const std::optional<std::int64_t> whole = integer(index);
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<bool> GgufValue::boolean(std::int64_t index) const {
  return element_type_ == GgufType::kBool
             ? std::optional(number_at<std::uint8_t>(bytes_, index) != 0)
             : std::nullopt;
}

std::optional<std::string_view> GgufValue::string(std::int64_t index) const {
  if (element_type_ != GgufType::kString) {
    return std::nullopt;
  }
  const std::size_t begin = index == 0 ? 0 : ends_[static_cast<std::size_t>(index - 1)];
  return std::string_view(bytes_).substr(begin, ends_[static_cast<std::size_t>(index)] - begin);
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

  std::int64_t bytes_of(const GgufTensor& tensor, const TensorType& type) const {
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

  std::int64_t alignment() const {
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

const GgufValue* Gguf::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

namespace {

[[noreturn]] void refuse_type(const Gguf& gguf,
                              std::string_view key,
                              const GgufValue& value,
                              const char* wanted) {
  fail(ErrorCode::kBadInput,
       "gguf",
       "{}: key {} is {}, not {}",
       gguf.file(),
       in_quotes(key),
       describe(value),
       wanted);
}

// The single value of a kind under `key`, by the accessor of that kind.
template <class T>
std::optional<T> single(const Gguf& gguf,
                        std::string_view key,
                        const char* wanted,
                        std::optional<T> (GgufValue::*get)(std::int64_t) const) {
  const GgufValue* value = gguf.find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::optional<T> result = value->is_array() ? std::nullopt : (value->*get)(0);
  if (!result) {
    refuse_type(gguf, key, *value, wanted);
  }
  return result;
}

}  // namespace

std::optional<std::int64_t> Gguf::integer(std::string_view key) const {
  return single(*this, key, "an integer of 63 bits", &GgufValue::integer);
}

std::optional<double> Gguf::number(std::string_view key) const {
  return single(*this, key, "a number", &GgufValue::number);
}

std::optional<bool> Gguf::boolean(std::string_view key) const {
  return single(*this, key, "a bool", &GgufValue::boolean);
}

std::optional<std::string_view> Gguf::string(std::string_view key) const {
  return single(*this, key, "a string", &GgufValue::string);
}

const GgufValue* Gguf::strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr && (!value->is_array() || value->element_type() != GgufType::kString)) {
    refuse_type(*this, key, *value, "an array of strings");
  }
  return value;
}

const GgufValue* Gguf::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr && (!value->is_array() || !is_integer(value->element_type()))) {
    refuse_type(*this, key, *value, "an array of integers");
  }
  return value;
}

}  // namespace longtune
