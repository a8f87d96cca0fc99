// Another process of this machine, watched without being its parent.
#pragma once

#include <sys/types.h>

namespace longhaul::dist {

/// Refers to one process for good: its number being given to another process later does no harm.
class ProcessHandle {
 public:
  ProcessHandle() = default;
  explicit ProcessHandle(pid_t pid);
  ProcessHandle(ProcessHandle&& other) noexcept;
  ProcessHandle& operator=(ProcessHandle&& other) noexcept;
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;
  ~ProcessHandle();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable once the process has ended; −1 when the kernel has no such descriptors (then only
  /// is_alive() tells).
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// False once the process has ended, also before its parent has collected it.
  [[nodiscard]] bool is_alive() const;
  /// True while a signal such as SIGSTOP holds the process.
  [[nodiscard]] bool is_stopped() const;
  /// Sends `signal`; does nothing when the process has ended.
  void send(int signal) const;

 private:
  pid_t pid_ = 0;
  int descriptor_ = -1;
  bool was_missing_ = true;
};

}  // namespace longhaul::dist
