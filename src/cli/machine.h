// What `longhaul doctor` finds out about this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace longhaul::cli {

/// One NVIDIA GPU as the driver describes it.
struct GpuInfo {
  std::string name{};
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
};

struct GpuReport {
  std::optional<std::string> driver{};  // version, nothing without a driver
  std::optional<std::string> cuda{};    // newest CUDA the driver serves
  std::vector<GpuInfo> gpus{};
};

/// Asks the driver's management library; empty without a driver.
GpuReport find_gpus();

/// GPUs that ranks started here can use: those of CUDA_VISIBLE_DEVICES (its text, null when unset),
/// none when this program has no GPU part beside it.
std::int64_t usable_gpus(const char* visible_devices);

/// Memory that can be allocated without swapping, 0 when the system does not say.
std::int64_t available_memory_bytes();
/// Cores this process may use.
std::int64_t usable_cores();
/// Free bytes where `folder` (or its nearest existing parent) lies; nothing when that cannot be
/// asked.
std::optional<std::int64_t> free_disk_bytes(const std::filesystem::path& folder);

/// Why no file can be made in `folder` (or, while there is none, in its nearest existing parent);
/// nothing when one can.
std::optional<std::string> why_not_writable(const std::filesystem::path& folder);

/// True when a TCP connection to `host`:443 opens within `seconds`; looks nothing up and loads
/// nothing beyond that.
bool reaches_host(const std::string& host, double seconds);

}  // namespace longhaul::cli
