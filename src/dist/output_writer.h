// Text for a descriptor that may stop taking it for any time: a pipe that nobody reads, a terminal
// after Ctrl-S. A thread of its own writes, so whoever adds text never waits.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>
#include <thread>

namespace longhaul::dist {

/// Writes in the order of add(). A descriptor that fails (nobody reads any more) takes everything
/// and keeps nothing.
class OutputWriter {
 public:
  /// `fd` stays open for as long as the process lives: a write that hangs is left behind with it.
  explicit OutputWriter(int fd);
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;
  /// Gives up what has not been written.
  ~OutputWriter();

  /// False while so much waits that the source should wait, too.
  [[nodiscard]] bool has_room() const;
  void add(std::string_view text);
  /// Bytes that have been added and not been taken yet.
  [[nodiscard]] std::size_t waiting_bytes() const;
  /// Bytes taken so far; grows while somebody reads.
  [[nodiscard]] std::size_t written_bytes() const;
  /// Waits until nothing waits or the time is over; true when nothing waits.
  [[nodiscard]] bool wait_until_written(std::chrono::milliseconds patience) const;

 private:
  struct State;
  static void write_on(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // shared with a thread that may outlive this object
  std::thread thread_;            // runs from the first text on
};

}  // namespace longhaul::dist
