#include "cli/machine.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>

#include "cli/nvml.h"
#include "cli/shared_object.h"
#include "ops/cuda_library.h"

namespace longhaul::cli {
namespace {

std::optional<std::string> nvml_text(int (*query)(char*, unsigned int)) {
  std::array<char, 96> text{};
  if (query == nullptr || query(text.data(), text.size()) != 0) {
    return std::nullopt;
  }
  return std::string(text.data());
}

std::vector<GpuInfo> nvml_devices(const SharedObject& nvml) {
  auto* count_of = nvml.function<int(unsigned int*)>("nvmlDeviceGetCount_v2");
  auto* handle_of = nvml.function<int(unsigned int, NvmlDevice*)>("nvmlDeviceGetHandleByIndex_v2");
  auto* name_of = nvml.function<int(NvmlDevice, char*, unsigned int)>("nvmlDeviceGetName");
  auto* memory_of = nvml.function<int(NvmlDevice, NvmlMemory*)>("nvmlDeviceGetMemoryInfo");
  unsigned int count = 0;
  std::vector<GpuInfo> gpus;
  if (count_of == nullptr || handle_of == nullptr || name_of == nullptr || memory_of == nullptr ||
      count_of(&count) != 0) {
    return gpus;
  }
  for (unsigned int i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    std::array<char, 96> name{};
    NvmlMemory memory{};
    if (handle_of(i, &device) == 0 && name_of(device, name.data(), name.size()) == 0 &&
        memory_of(device, &memory) == 0) {
      gpus.push_back({name.data(), static_cast<std::int64_t>(memory.total),
                      static_cast<std::int64_t>(memory.free)});
    }
  }
  return gpus;
}

std::filesystem::path nearest_existing(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(path, error);
  while (!place.empty() && place != place.root_path() && !std::filesystem::exists(place, error)) {
    place = place.parent_path();
  }
  return place;
}

/// Child side of reaches_host: only calls that are safe after fork, then leaves without cleaning
/// up.
[[noreturn]] void connect_and_leave(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int code = 1;
  if (::getaddrinfo(host.c_str(), "443", &hints, &found) == 0) {
    for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
      const int handle = ::socket(address->ai_family, SOCK_STREAM, 0);
      if (handle >= 0 && ::connect(handle, address->ai_addr, address->ai_addrlen) == 0) {
        code = 0;
        break;
      }
    }
  }
  ::_exit(code);
}

}  // namespace

GpuReport find_gpus() {
  GpuReport report;
  const SharedObject nvml(kNvmlLibrary, "");
  auto* init = nvml.function<int()>("nvmlInit_v2");
  if (init == nullptr || init() != 0) {
    return report;
  }
  report.driver = nvml_text(nvml.function<int(char*, unsigned int)>("nvmlSystemGetDriverVersion"));
  int cuda = 0;
  auto* cuda_of = nvml.function<int(int*)>("nvmlSystemGetCudaDriverVersion_v2");
  if (cuda_of != nullptr && cuda_of(&cuda) == 0) {
    report.cuda = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  }
  report.gpus = nvml_devices(nvml);
  if (auto* shutdown = nvml.function<int()>("nvmlShutdown")) {
    shutdown();
  }
  return report;
}

std::int64_t usable_gpus(const char* visible_devices) {
  std::error_code ignored;
  if (!std::filesystem::exists(ops::cuda_library_path(), ignored)) {
    return 0;
  }
  const auto present = static_cast<std::int64_t>(find_gpus().gpus.size());
  if (visible_devices == nullptr) {
    return present;
  }
  // As CUDA reads it: a list of numbers or names; the first invalid one ends it.
  const std::string text = visible_devices;
  if (text.empty() || text.front() == '-') {
    return 0;
  }
  return std::min(present, std::int64_t{1} + std::count(text.begin(), text.end(), ','));
}

std::int64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kib = 0;
  std::string unit;
  while (file >> name >> kib && std::getline(file, unit)) {
    if (name == "MemAvailable:") {
      return kib * 1024;
    }
  }
  return 0;
}

std::int64_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    return CPU_COUNT(&cores);
  }
  return std::thread::hardware_concurrency();
}

std::optional<std::int64_t> free_disk_bytes(const std::filesystem::path& folder) {
  std::error_code error;
  const auto space = std::filesystem::space(nearest_existing(folder), error);
  return error ? std::nullopt : std::optional(static_cast<std::int64_t>(space.available));
}

std::optional<std::string> why_not_writable(const std::filesystem::path& folder) {
  const std::filesystem::path place = nearest_existing(folder);
  std::error_code error;
  if (!std::filesystem::is_directory(place, error)) {
    return std::generic_category().message(error ? error.value() : ENOTDIR);
  }
  return ::access(place.c_str(), W_OK | X_OK) == 0
             ? std::nullopt
             : std::optional(std::generic_category().message(errno));
}

bool reaches_host(const std::string& host, double seconds) {
  // A name look-up cannot be interrupted, a child process can.
  const pid_t child = ::fork();
  if (child < 0) {
    return false;
  }
  if (child == 0) {
    connect_and_leave(host);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  while (std::chrono::steady_clock::now() < end) {
    if (::waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return false;
}

}  // namespace longhaul::cli
