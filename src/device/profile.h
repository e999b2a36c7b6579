#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace longtune {

/// What the operations of one name took.
struct OperationTotals {
  std::string_view name;
  std::int64_t calls = 0;
  double seconds = 0;  ///< by the clock on the wall
  double flops = 0;    ///< two for a multiplication and its addition, by formula
};

/// Adds up the time of every operation of the thread that made it while it lives; at most one at a
/// time. An operation within another is part of that one.
class Profile {
 public:
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// In the order of their first calls.
  [[nodiscard]] const std::vector<OperationTotals>& rows() const { return rows_; }

  /// The one that lives; null where none does.
  [[nodiscard]] static Profile* current();

  /// For OperationScope: `name` must live as long as the program. What finds no memory is not
  /// counted.
  void add(std::string_view name, double seconds, double flops) noexcept;

 private:
  std::vector<OperationTotals> rows_;
};

}  // namespace longtune
