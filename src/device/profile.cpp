#include "device/profile.h"

#include <algorithm>

namespace longtune {
namespace {

Profile*& living() {
  static Profile* profile = nullptr;
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

void Profile::add(std::string_view name, double seconds, double flops) {
  auto found = std::ranges::find(rows_, name, &OperationTotals::name);
  if (found == rows_.end()) {
    found = rows_.insert(found, {.name = std::string(name)});
  }
  ++found->calls;
  found->seconds += seconds;
  found->flops += flops;
}

}  // namespace longtune
