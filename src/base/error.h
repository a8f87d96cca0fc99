// Error kinds of the whole program and the text of one problem. The library throws, `cli/main.cpp`
// alone prints and exits: UserError → 2, SystemError → 3, InternalError and failed assertions → 4.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::base {

/// One problem, printed as `WHERE: WHAT (got GOT, expected EXPECTED). HINT`; empty parts are left
/// out.
struct Problem {
  std::string where;
  std::string what;
  std::string got{};
  std::string expected{};
  std::string hint{};

  /// The one line that is shown; control characters of foreign text are escaped so that it stays
  /// one line.
  [[nodiscard]] std::string line() const;
};

/// Common base: one or more problems, `what()` is their lines joined by '\n'.
class Error : public std::runtime_error {
 public:
  explicit Error(std::vector<Problem> problems);
  [[nodiscard]] const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

/// The user can fix it: options, data, model files (exit 2).
class UserError : public Error {
 public:
  explicit UserError(Problem problem) : Error({std::move(problem)}) {}
  explicit UserError(std::vector<Problem> problems) : Error(std::move(problems)) {}
};

/// The machine: device, network, disk, a peer (exit 3).
class SystemError : public Error {
 public:
  explicit SystemError(Problem problem) : Error({std::move(problem)}) {}
};

/// Our bug (exit 4). Thrown by LONGHAUL_ASSERT, never reachable by input.
class InternalError : public Error {
 public:
  explicit InternalError(Problem problem) : Error({std::move(problem)}) {}
};

[[noreturn]] void fail_assertion(std::string_view condition, std::string_view message,
                                 std::source_location location);

}  // namespace longhaul::base

/// Always-on check of something that no input can break; `message` says what was expected.
#define LONGHAUL_ASSERT(condition, message)                                                     \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      ::longhaul::base::fail_assertion(#condition, (message), std::source_location::current()); \
    }                                                                                           \
  } while (false)
