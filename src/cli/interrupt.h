// Ctrl-C, SIGTERM and SIGHUP for commands that answer: the first one ends the answer, a second one the
// program at once.
#pragma once

namespace longhaul::cli {

/// Handles them while it lives (SIGHUP unless it is ignored); waiting reads return early.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  /// The signal that came since the last clear(), 0 for none.
  [[nodiscard]] static int pending();
  /// The wish has been followed.
  static void clear();
};

}  // namespace longhaul::cli
