#include "device/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "device/profile.h"

namespace longtune {
namespace {

struct GuardedBlock {
  std::byte* base;
  std::int64_t bytes;
};

// The guarded arenas of the process and how many operations are under way. Only tests guard.
struct Guards {
  std::mutex mutex;
  std::vector<GuardedBlock> blocks;
  int depth = 0;

  // A test's memory that cannot be guarded, or not be opened again, leaves nothing to go on with.
  void apply() const noexcept {
    for (const GuardedBlock& block : blocks) {
      const int access = depth > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
      if (mprotect(block.base, static_cast<std::size_t>(block.bytes), access) != 0) {
        std::perror("longtune: cannot change the protection of the guarded arena");
        std::abort();
      }
    }
  }
};

Guards& guards() {
  static Guards instance;
  return instance;
}

void charge(std::vector<PurposeBytes>& purposes, std::string_view purpose, std::int64_t bytes) {
  for (PurposeBytes& known : purposes) {
    if (known.purpose == purpose) {
      known.bytes += bytes;
      return;
    }
  }
  purposes.push_back({std::string(purpose), bytes});
}

}  // namespace

Arena::Options Arena::Options::from_environment() {
  const char* value = std::getenv("LONGTUNE_GUARD_ARENA");
  return {.guard = value != nullptr && std::string_view(value) == "1"};
}

Arena::Arena(std::int64_t capacity, Options options)
    : capacity_(round_up(std::max<std::int64_t>(capacity, 1), sysconf(_SC_PAGESIZE))),
      guarded_(options.guard) {
  void* memory = mmap(nullptr,
                      static_cast<std::size_t>(capacity_),
                      PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS,
                      -1,
                      0);
  if (memory == MAP_FAILED) {
    fail(ErrorCode::kIo, "arena", "the system refused {} of memory", format_bytes(capacity_));
  }
  base_ = static_cast<std::byte*>(memory);
  if (guarded_) {
    const std::lock_guard lock(guards().mutex);
    guards().blocks.push_back({base_, capacity_});
    guards().apply();
  } else {
    madvise(memory, static_cast<std::size_t>(capacity_), MADV_HUGEPAGE);  // a hint: may be refused
  }
}

Arena Arena::planning() {
  return {};
}

Arena::Arena(Arena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      capacity_(other.capacity_),
      used_(other.used_),
      high_water_(other.high_water_),
      guarded_(other.guarded_),
      purposes_(std::move(other.purposes_)),
      peak_(std::move(other.peak_)) {}

Arena::~Arena() {
  if (base_ == nullptr) {
    return;
  }
  if (guarded_) {
    const std::lock_guard lock(guards().mutex);
    std::erase_if(guards().blocks, [this](const GuardedBlock& b) { return b.base == base_; });
  }
  munmap(base_, static_cast<std::size_t>(capacity_));
}

std::byte* Arena::take_bytes(std::string_view purpose, std::int64_t bytes) {
  const std::int64_t taken = round_up(bytes, kAlignment);
  if (base_ != nullptr && taken > capacity_ - used_) {
    fail(ErrorCode::kOutOfBudget,
         "arena",
         "{} needs {}, but {} of {} are taken",
         purpose,
         format_bytes(taken),
         format_bytes(used_),
         format_bytes(capacity_));
  }
  std::byte* result = base_ == nullptr ? nullptr : base_ + used_;
  used_ += taken;
  charge(purposes_, purpose, taken);
  if (used_ > high_water_) {
    high_water_ = used_;
    peak_ = purposes_;
  }
  return result;
}

TensorView Arena::take(std::string_view purpose,
                       DType dtype,
                       std::initializer_list<std::int64_t> shape) {
  TensorView result = TensorView{.dtype = dtype}.reshaped(shape);
  result.data = take_bytes(purpose, result.bytes());
  return result;
}

void Arena::keep_high_water() {
  used_ = high_water_;
  purposes_ = peak_;
}

Arena::Scope::Scope(Arena& arena) : arena_(arena), used_(arena.used_), purposes_(arena.purposes_) {}

Arena::Scope::~Scope() {
  arena_.used_ = used_;
  arena_.purposes_ = std::move(purposes_);
}

OperationScope::OperationScope(const char* name, double flops)
    : name_(name), flops_(flops), start_(std::chrono::steady_clock::now()) {
  Guards& all = guards();
  const std::lock_guard lock(all.mutex);
  if (all.depth++ == 0) {
    all.apply();
  }
}

OperationScope::~OperationScope() {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start_;
  Guards& all = guards();
  const std::lock_guard lock(all.mutex);
  if (--all.depth == 0) {
    all.apply();
    if (Profile* profile = Profile::current()) {
      profile->add(name_, taken.count(), flops_);
    }
  }
}

void copy_to_device(const TensorView& target, const void* source, std::int64_t bytes) {
  const OperationScope scope("copies");
  std::memcpy(target.data, source, static_cast<std::size_t>(bytes));
}

void copy_to_host(void* target, const ConstTensorView& source, std::int64_t bytes) {
  const OperationScope scope("copies");
  std::memcpy(target, source.data, static_cast<std::size_t>(bytes));
}

void fill_zero(const TensorView& target) {
  const OperationScope scope("copies");
  std::memset(target.data, 0, static_cast<std::size_t>(target.bytes()));
}

}  // namespace longtune
