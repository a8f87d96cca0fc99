#include "data/token_dump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace longhaul::data {
namespace {

constexpr std::size_t kDumpBuffer = std::size_t{1} << 20U;

/// The file being written: under a name of its own until it is whole, unless it is a pipe or
/// device.
class DumpFile {
 public:
  explicit DumpFile(const std::filesystem::path& target) : target_(target), open_path_(target) {
    std::error_code error;
    const bool special =
        std::filesystem::exists(target, error) && !std::filesystem::is_regular_file(target, error);
    if (!special) {
      open_path_ += fmt::format(".tmp-{}", ::getpid());
    }
    fd_ = ::open(open_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) {
      throw base::SystemError({.where = target.string(),
                               .what = "cannot create: " + std::generic_category().message(errno)});
    }
  }
  DumpFile(const DumpFile&) = delete;
  DumpFile& operator=(const DumpFile&) = delete;
  ~DumpFile() {
    if (fd_ >= 0) {
      ::close(fd_);
      if (open_path_ != target_) {
        ::unlink(open_path_.c_str());
      }
    }
  }

  void line(const std::string& text) {
    buffer_ += text;
    buffer_ += '\n';
    if (buffer_.size() >= kDumpBuffer) {
      flush();
    }
  }

  void publish() {
    flush();
    const bool renamed = open_path_ != target_;
    if (::close(std::exchange(fd_, -1)) != 0 ||
        (renamed && ::rename(open_path_.c_str(), target_.c_str()) != 0)) {
      const int error = errno;
      if (renamed) {
        ::unlink(open_path_.c_str());
      }
      throw base::SystemError({.where = target_.string(),
                               .what = "cannot write: " + std::generic_category().message(error)});
    }
  }

 private:
  void flush() {
    base::write_fully(fd_, buffer_, target_);
    buffer_.clear();
  }

  std::filesystem::path target_;
  std::filesystem::path open_path_;
  int fd_ = -1;
  std::string buffer_;
};

/// Every line is checked before the first one is used, so that an error leaves no half of an output.
void check_lines(std::string_view text, const std::string& where) {
  std::size_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (!base::is_valid_utf8(text.substr(at, end - at))) {
      throw base::UserError(
          base::Problem{.where = fmt::format("{}:{}", where, number), .what = "not UTF-8 text"});
    }
    at = end + 1;
  }
}

}  // namespace

std::string ids_json(std::span<const std::int32_t> ids) {
  fmt::memory_buffer buffer;
  const auto out = std::back_inserter(buffer);
  buffer.push_back('[');
  for (std::size_t i = 0; i < ids.size(); ++i) {
    fmt::format_to(out, FMT_STRING("{}{}"), i == 0 ? "" : ", ", ids[i]);
  }
  buffer.push_back(']');
  return fmt::to_string(buffer);
}

std::string sample_json(const text::TokenizedSample& sample) {
  return fmt::format("{{\"input_ids\": {}, \"labels\": {}}}", ids_json(sample.ids),
                     ids_json(sample.labels));
}

void dump_tokens(const TokenStore& store, const std::filesystem::path& file) {
  DumpFile out(file);
  for (std::int64_t sample = 0; sample < store.size(); ++sample) {
    out.line(sample_json(store.read(sample)));
  }
  out.publish();
}

void tokenize_lines(std::string_view text, const std::string& where,
                    const std::function<std::vector<std::int32_t>(std::string_view)>& encode,
                    const std::function<void(const std::string& json)>& emit) {
  check_lines(text, where);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    emit(ids_json(encode(text.substr(at, end - at))));
    at = end + 1;
  }
}

}  // namespace longhaul::data
