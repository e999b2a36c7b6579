#include "device/profile.h"

#include <algorithm>
#include <new>

namespace longtune {
namespace {

Profile*& living() {
  static thread_local Profile* profile = nullptr;
  return profile;
}

}  // namespace

Profile::Profile() {
  living() = this;
}

Profile::~Profile() {
  living() = nullptr;
}

Profile* Profile::current() {
  return living();
}

void Profile::add(std::string_view name, double seconds, double flops) noexcept {
  auto found = std::ranges::find(rows_, name, &OperationTotals::name);
  if (found == rows_.end()) {
    try {
      found = rows_.insert(found, {.name = name});
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  ++found->calls;
  found->seconds += seconds;
  found->flops += flops;
}

}  // namespace longtune
