#include "cli/gpu_sampler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "cli/nvml.h"
#include "cli/shared_object.h"

namespace longhaul::cli {
namespace {

constexpr int kSmClock = 1;  // NVML_CLOCK_SM

constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

void GpuSamples::add(const GpuReading& reading) {
  ++count;
  const auto share = 1.0 / static_cast<double>(count);
  mean_sm_clock_mhz += (reading.sm_clock_mhz - mean_sm_clock_mhz) * share;
  mean_power_w += (reading.power_w - mean_power_w) * share;
  most_used_bytes = std::max(most_used_bytes, reading.used_bytes);
}

std::function<std::optional<GpuReading>()> gpu_reader(const std::string& bus_address) {
  if (bus_address.empty()) {
    return {};
  }
  const SharedObject nvml(kNvmlLibrary, "");
  auto* init = nvml.function<int()>("nvmlInit_v2");
  auto* handle_of =
      nvml.function<int(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByPciBusId_v2");
  auto* clock_of = nvml.function<int(NvmlDevice, int, unsigned int*)>("nvmlDeviceGetClockInfo");
  auto* power_of = nvml.function<int(NvmlDevice, unsigned int*)>("nvmlDeviceGetPowerUsage");
  auto* memory_of = nvml.function<int(NvmlDevice, NvmlMemory*)>("nvmlDeviceGetMemoryInfo");
  NvmlDevice device = nullptr;
  if (init == nullptr || handle_of == nullptr || clock_of == nullptr || power_of == nullptr ||
      memory_of == nullptr || init() != 0 || handle_of(bus_address.c_str(), &device) != 0) {
    return {};
  }
  return [nvml, device, clock_of, power_of, memory_of]() -> std::optional<GpuReading> {
    unsigned int mhz = 0;
    unsigned int milliwatts = 0;
    NvmlMemory memory{};
    if (clock_of(device, kSmClock, &mhz) != 0 || power_of(device, &milliwatts) != 0 ||
        memory_of(device, &memory) != 0) {
      return std::nullopt;
    }
    return GpuReading{.sm_clock_mhz = static_cast<double>(mhz),
                      .power_w = static_cast<double>(milliwatts) * 1e-3,
                      .used_bytes = static_cast<std::int64_t>(memory.used)};
  };
}

void GpuSampler::start() {
  samples_ = {};
  if (!reader_) {
    return;
  }
  thread_ = std::jthread([this](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock lock(mutex);
    do {
      if (const auto reading = reader_()) {
        samples_.add(*reading);
      }
    } while (!ended.wait_for(lock, stop, kInterval, [&] { return stop.stop_requested(); }));
  });
}

std::optional<GpuSamples> GpuSampler::stop() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  return samples_.count > 0 ? std::optional(samples_) : std::nullopt;
}

}  // namespace longhaul::cli
