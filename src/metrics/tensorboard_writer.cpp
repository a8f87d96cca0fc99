#include "metrics/tensorboard_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace longhaul::metrics {
namespace {

constexpr std::uint32_t kReversedCastagnoli = 0x82F63B78;
constexpr std::uint32_t kMaskDelta = 0xA282EAD8;

// Field numbers of tensorboard/compat/proto: event.proto and summary.proto.
constexpr std::uint32_t kEventWallTime = 1;
constexpr std::uint32_t kEventStep = 2;
constexpr std::uint32_t kEventFileVersion = 3;
constexpr std::uint32_t kEventSummary = 5;
constexpr std::uint32_t kEventSessionLog = 7;
constexpr std::uint32_t kSummaryValue = 1;
constexpr std::uint32_t kValueTag = 1;
constexpr std::uint32_t kValueSimple = 2;
constexpr std::uint32_t kSessionStatus = 1;
constexpr std::uint64_t kSessionStart = 1;

constexpr std::uint32_t kWireVarint = 0;
constexpr std::uint32_t kWire64 = 1;
constexpr std::uint32_t kWireBytes = 2;
constexpr std::uint32_t kWire32 = 5;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1U) != 0 ? kReversedCastagnoli : 0U);
    }
    table[byte] = value;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

template <typename Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    out += static_cast<char>((value >> (8 * i)) & 0xFFU);
  }
}

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80U) {
    out += static_cast<char>((value & 0x7FU) | 0x80U);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void put_key(std::string& out, std::uint32_t field, std::uint32_t wire) {
  put_varint(out, (field << 3) | wire);
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_key(out, field, kWireBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_double(std::string& out, std::uint32_t field, double value) {
  put_key(out, field, kWire64);
  put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

void put_float(std::string& out, std::uint32_t field, float value) {
  put_key(out, field, kWire32);
  put_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

void put_integer(std::string& out, std::uint32_t field, std::uint64_t value) {
  put_key(out, field, kWireVarint);
  put_varint(out, value);
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event_at(std::int64_t step) {
  std::string event;
  put_double(event, kEventWallTime, now_s());
  put_integer(event, kEventStep, static_cast<std::uint64_t>(step));
  return event;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') {
    return "localhost";
  }
  return name.data();
}

/// TensorBoard orders the files of a folder by name, so the time comes first; O_EXCL keeps two runs
/// apart.
std::filesystem::path new_event_file(const std::filesystem::path& folder, int& fd) {
  const auto seconds = static_cast<std::int64_t>(now_s());
  for (int serial = 0;; ++serial) {
    std::filesystem::path path = folder / fmt::format("events.out.tfevents.{:010d}.{}.{}.{}",
                                                      seconds, host_name(), ::getpid(), serial);
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0) {
      return path;
    }
    if (errno != EEXIST) {
      throw base::SystemError(
          {.where = path.string(),
           .what = "cannot create the event file: " + std::generic_category().message(errno)});
    }
  }
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t value = ~0U;
  for (const char byte : bytes) {
    value = (value >> 8) ^ kCrcTable[(value ^ static_cast<unsigned char>(byte)) & 0xFFU];
  }
  return ~value;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + kMaskDelta;
}

std::string tf_record(std::string_view bytes) {
  std::string record;
  put_little_endian(record, std::uint64_t{bytes.size()});
  put_little_endian(record, masked_crc32c(record));
  record += bytes;
  put_little_endian(record, masked_crc32c(bytes));
  return record;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder,
                                     std::optional<std::int64_t> resumed_after) {
  base::make_folder(folder);
  path_ = new_event_file(folder, fd_);
  try {
    std::string version;
    put_double(version, kEventWallTime, now_s());
    put_bytes(version, kEventFileVersion, "brain.Event:2");
    append(version);
    if (resumed_after) {
      std::string session;
      put_integer(session, kSessionStatus, kSessionStart);
      std::string event = event_at(*resumed_after + 1);
      put_bytes(event, kEventSessionLog, session);
      append(event);
    }
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

TensorBoardWriter::~TensorBoardWriter() { ::close(fd_); }

void TensorBoardWriter::write(const StepRecord& record) {
  write(record.global_step, scalars(record));
}

void TensorBoardWriter::write(const EvalRecord& record) {
  write(record.global_step, scalars(record));
}

void TensorBoardWriter::write(std::int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    put_bytes(entry, kValueTag, tag);
    put_float(entry, kValueSimple, static_cast<float>(value));
    put_bytes(summary, kSummaryValue, entry);
  }
  std::string event = event_at(step);
  put_bytes(event, kEventSummary, summary);
  append(event);
}

void TensorBoardWriter::append(std::string_view event) {
  base::write_fully(fd_, tf_record(event), path_);
}

}  // namespace longhaul::metrics
