#include "metrics/memory.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace longhaul::metrics {
namespace {

/// A file of /proc or /sys; empty when it is not there (another kernel, a restricted container).
std::string read_probe(const std::filesystem::path& path) {
  try {
    return base::read_file(path);
  } catch (const base::Error&) {
    return {};
  }
}

std::uint64_t status_bytes(std::string_view name) {
  return proc_field_bytes(read_probe("/proc/self/status"), name).value_or(0);
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::optional<std::uint64_t> proc_field_bytes(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') {
      continue;
    }
    line.remove_prefix(name.size() + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const auto kib = parse_number(line);
    return kib ? std::optional(*kib * 1024) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> cgroup_bytes(std::string_view text) { return parse_number(text); }

std::uint64_t peak_resident_bytes() { return status_bytes("VmHWM"); }
std::uint64_t resident_bytes() { return status_bytes("VmRSS"); }

HostMemory host_memory() {
  const std::string meminfo = read_probe("/proc/meminfo");
  HostMemory memory{.total_bytes = proc_field_bytes(meminfo, "MemTotal").value_or(0),
                    .available_bytes = proc_field_bytes(meminfo, "MemAvailable").value_or(0)};
  const auto limit = cgroup_bytes(read_probe("/sys/fs/cgroup/memory.max"));
  if (limit && *limit < memory.total_bytes) {
    const auto used = cgroup_bytes(read_probe("/sys/fs/cgroup/memory.current")).value_or(0);
    memory.total_bytes = *limit;
    memory.available_bytes =
        std::min(memory.available_bytes, *limit > used ? *limit - used : std::uint64_t{0});
  }
  return memory;
}

}  // namespace longhaul::metrics
