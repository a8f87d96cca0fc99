#include "base/log.h"

#include <mutex>
#include <utility>

namespace longhaul::base {
namespace {

struct SinkState {
  std::mutex mutex;
  LogSink sink;
};

SinkState& sink_state() {
  static SinkState state;
  return state;
}

}  // namespace

void set_log_sink(LogSink sink) {
  SinkState& state = sink_state();
  const std::lock_guard lock(state.mutex);
  state.sink = std::move(sink);
}

void log_line(const std::string& line) {
  SinkState& state = sink_state();
  const std::lock_guard lock(state.mutex);
  if (state.sink) {
    state.sink(line);
  }
}

}  // namespace longhaul::base
