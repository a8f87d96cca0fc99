// Who is told what a communicator is doing, so that a launcher can say where a rank was when it
// died.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longhaul::dist {

/// Called by a communicator on the thread of the operation; must not throw or block.
class OperationObserver {
 public:
  OperationObserver() = default;
  OperationObserver(const OperationObserver&) = delete;
  OperationObserver& operator=(const OperationObserver&) = delete;
  virtual ~OperationObserver() = default;

  virtual void operation_begins(std::string_view name, std::int64_t step) noexcept = 0;
  virtual void operation_ends() noexcept = 0;
  /// The rank ends the job for `line` and will not return.
  virtual void rank_aborts(const std::string& line) noexcept = 0;
};

}  // namespace longhaul::dist
