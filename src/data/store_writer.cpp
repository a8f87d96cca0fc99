#include "data/store_writer.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace longhaul::data {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20U;

/// The machine cannot write here: the user can choose another place.
[[noreturn]] void fail(const std::filesystem::path& path, const std::string& action, int error) {
  throw base::SystemError(
      {.where = path.string(),
       .what = "cannot " + action + ": " + std::generic_category().message(error),
       .hint = "Free space there or choose another folder with --cache_dir"});
}

template <typename Record>
std::string_view bytes_of(const std::vector<Record>& records) {
  return {reinterpret_cast<const char*>(records.data()), records.size() * sizeof(Record)};
}

struct HashDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

/// The open temporary file: buffered appends with a running checksum.
class StoreWriter::Sink {
 public:
  explicit Sink(std::filesystem::path path)
      : path_(std::move(path)),
        fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
        hash_(XXH3_createState()) {
    if (fd_ < 0) {
      fail(path_, "create", errno);
    }
    restart_checksum();
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  ~Sink() {
    close_quietly();
    if (!kept_) {
      ::unlink(path_.c_str());
    }
  }

  void append(std::string_view bytes) {
    XXH3_64bits_update(hash_.get(), bytes.data(), bytes.size());
    buffer_ += bytes;
    if (buffer_.size() >= kBuffer) {
      flush();
    }
  }

  void restart_checksum() { XXH3_64bits_reset(hash_.get()); }
  [[nodiscard]] std::uint64_t checksum() const { return XXH3_64bits_digest(hash_.get()); }

  /// Overwrites the start of the file, syncs, closes and renames it.
  void publish(std::string_view header, const std::filesystem::path& target) {
    flush();
    if (::pwrite(fd_, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size())) {
      fail(path_, "write", errno);
    }
    if (::fsync(fd_) != 0) {
      fail(path_, "sync", errno);
    }
    if (::close(std::exchange(fd_, -1)) != 0) {
      fail(path_, "close", errno);
    }
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      fail(target, "rename into place", errno);
    }
    kept_ = true;
    base::sync_path(target.parent_path());
  }

 private:
  void flush() {
    std::string_view rest = buffer_;
    while (!rest.empty()) {
      const ssize_t put = ::write(fd_, rest.data(), rest.size());
      if (put < 0 && errno == EINTR) {
        continue;
      }
      if (put < 0) {
        fail(path_, "write", errno);
      }
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
    buffer_.clear();
  }

  void close_quietly() {
    if (fd_ >= 0) {
      ::close(std::exchange(fd_, -1));
    }
  }

  std::filesystem::path path_;
  int fd_;
  std::unique_ptr<XXH3_state_t, HashDeleter> hash_;
  std::string buffer_;
  bool kept_ = false;
};

StoreWriter::StoreWriter(std::filesystem::path path, std::filesystem::path temporary)
    : path_(std::move(path)), sink_(std::make_unique<Sink>(std::move(temporary))) {
  header_.header_bytes = sizeof(header_);
  sink_->append(std::string(sizeof(header_), '\0'));
  sink_->restart_checksum();
}

StoreWriter::~StoreWriter() = default;

void StoreWriter::add_row(std::uint32_t file, const RowRef& row,
                          std::span<const text::TokenizedSample> samples) {
  rows_.push_back({.offset = row.offset,
                   .bytes = row.bytes,
                   .line = row.line,
                   .first_sample = samples_.size(),
                   .num_samples = static_cast<std::uint32_t>(samples.size()),
                   .file = file});
  for (const text::TokenizedSample& sample : samples) {
    const std::size_t length = sample.ids.size();
    LONGHAUL_ASSERT(length > 0 && length == sample.labels.size() && length < UINT32_MAX,
                    "a sample has as many labels as ids and at least one");
    std::string bits(target_bytes(length), '\0');
    std::uint32_t targets = 0;
    for (std::size_t i = 0; i < length; ++i) {
      if (sample.labels[i] == text::kNoLabel) {
        continue;
      }
      LONGHAUL_ASSERT(i > 0 && sample.labels[i] == sample.ids[i],
                      "a label is its own token, and the first token is no target");
      bits[i / 8] = static_cast<char>(static_cast<unsigned char>(bits[i / 8]) | (1U << (i % 8)));
      ++targets;
    }
    samples_.push_back({.offset = header_.tokens_bytes,
                        .length = static_cast<std::uint32_t>(length),
                        .num_targets = targets,
                        .row = rows_.size() - 1});
    sink_->append({reinterpret_cast<const char*>(sample.ids.data()), length * 4});
    sink_->append(bits);
    header_.tokens_bytes += length * 4 + bits.size();
    header_.num_tokens += length;
    header_.num_targets += targets;
  }
}

void StoreWriter::finish(const StoreMeta& meta) {
  if (header_.tokens_bytes % 8 != 0) {
    sink_->append(std::string(4, '\0'));  // the tables behind are aligned to 8
    header_.tokens_bytes += 4;
  }
  header_.tokens_checksum = sink_->checksum();
  sink_->restart_checksum();
  const std::string json =
      meta_to_json(meta).dump(-1, ' ', false, base::OrderedJson::error_handler_t::replace);
  sink_->append(bytes_of(samples_));
  sink_->append(bytes_of(rows_));
  sink_->append(json);
  header_.num_samples = samples_.size();
  header_.num_rows = rows_.size();
  header_.json_bytes = json.size();
  header_.tables_checksum = sink_->checksum();
  header_.header_checksum = XXH3_64bits(&header_, offsetof(StoreHeader, header_checksum));
  sink_->publish({reinterpret_cast<const char*>(&header_), sizeof(header_)}, path_);
}

}  // namespace longhaul::data
