#include "dist/output_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string>

namespace longhaul::dist {
namespace {

constexpr std::size_t kRoom = std::size_t{4} << 20;
/// Small, so that a slow reader is seen to read.
constexpr std::size_t kBytesAtOnce = 4096;

/// Writes a part of `text`, waiting as long as it takes; 0 when that fails.
std::size_t write_some(int fd, std::string_view text) {
  while (true) {
    const ssize_t written = write(fd, text.data(), std::min(text.size(), kBytesAtOnce));
    if (written > 0) {
      return static_cast<std::size_t>(written);
    }
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd event{.fd = fd, .events = POLLOUT, .revents = 0};
      poll(&event, 1, -1);  // somebody else made the open file non-blocking
    } else if (written == 0 || errno != EINTR) {
      return 0;
    }
  }
}

}  // namespace

struct OutputWriter::State {
  int fd = -1;
  std::mutex mutex;
  std::condition_variable has_work;
  std::condition_variable has_written;
  std::string text;  // added, not yet with the thread
  std::size_t waiting_bytes = 0;
  std::size_t written_bytes = 0;
  bool is_in_write = false;
  bool has_failed = false;
  bool is_given_up = false;
};

OutputWriter::OutputWriter(int fd) : state_(std::make_shared<State>()) { state_->fd = fd; }

OutputWriter::~OutputWriter() {
  if (!thread_.joinable()) {
    return;
  }
  bool is_in_write = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_given_up = true;
    is_in_write = state_->is_in_write;
  }
  state_->has_work.notify_one();
  if (is_in_write) {
    thread_.detach();  // may never return
  } else {
    thread_.join();
  }
}

void OutputWriter::write_on(const std::shared_ptr<State>& state) {
  sigset_t signals;
  sigfillset(&signals);  // SIGPIPE too: a reader that has gone is a failed write
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::unique_lock lock(state->mutex);
  while (true) {
    state->has_work.wait(lock, [&] { return state->is_given_up || !state->text.empty(); });
    std::string text;
    text.swap(state->text);
    std::size_t begin = 0;
    while (begin < text.size() && !state->is_given_up && !state->has_failed) {
      state->is_in_write = true;
      lock.unlock();
      const std::size_t written = write_some(state->fd, std::string_view(text).substr(begin));
      lock.lock();
      state->is_in_write = false;
      state->has_failed = written == 0;
      begin += written;
      state->written_bytes += written;
      state->waiting_bytes = state->has_failed ? 0 : state->waiting_bytes - written;
      state->has_written.notify_all();
    }
    if (state->is_given_up || state->has_failed) {
      return;
    }
  }
}

bool OutputWriter::has_room() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting_bytes < kRoom;
}

void OutputWriter::add(std::string_view text) {
  if (text.empty()) {
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->has_failed) {
      return;
    }
    state_->text += text;
    state_->waiting_bytes += text.size();
  }
  if (!thread_.joinable()) {
    thread_ = std::thread([state = state_] { write_on(state); });
  }
  state_->has_work.notify_one();
}

std::size_t OutputWriter::waiting_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting_bytes;
}

std::size_t OutputWriter::written_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->written_bytes;
}

bool OutputWriter::wait_until_written(std::chrono::milliseconds patience) const {
  std::unique_lock lock(state_->mutex);
  return state_->has_written.wait_for(lock, patience, [&] { return state_->waiting_bytes == 0; });
}

}  // namespace longhaul::dist
