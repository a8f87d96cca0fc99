// Memory of this process and of the host, from /proc and the control group.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace longhaul::metrics {

/// Largest resident set so far (VmHWM), bytes; 0 when the system does not tell.
std::uint64_t peak_resident_bytes();
/// Resident set now (VmRSS), bytes; 0 when the system does not tell.
std::uint64_t resident_bytes();

/// Memory that processes of this host share; a control group's limit counts when it is lower.
struct HostMemory {
  std::uint64_t total_bytes = 0;
  std::uint64_t available_bytes = 0;
};
HostMemory host_memory();

/// Value in bytes of a `Name:   123 kB` line of /proc/self/status or /proc/meminfo.
std::optional<std::uint64_t> proc_field_bytes(std::string_view text, std::string_view name);
/// Value of a control-group file such as memory.max; nothing for "max" or anything that is no
/// number.
std::optional<std::uint64_t> cgroup_bytes(std::string_view text);

}  // namespace longhaul::metrics
