// Clocks, power and memory of one GPU while something is measured on it: without them no figure can
// be compared with another card's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace longhaul::cli {

/// One look at a GPU, in the management library's units.
struct GpuReading {
  double sm_clock_mhz = 0;
  double power_w = 0;
  std::int64_t used_bytes = 0;  // by all processes
};

/// What was seen between start() and stop().
struct GpuSamples {
  std::int64_t count = 0;
  double mean_sm_clock_mhz = 0;
  double mean_power_w = 0;
  std::int64_t most_used_bytes = 0;

  void add(const GpuReading& reading);
};

/// A function that reads the GPU at this bus address; an empty one where the management library or
/// the GPU is missing.
std::function<std::optional<GpuReading>()> gpu_reader(const std::string& bus_address);

/// Reads on a thread of its own, ten times a second.
class GpuSampler {
 public:
  using Reader = std::function<std::optional<GpuReading>()>;

  /// An empty reader makes a sampler that never sees anything.
  explicit GpuSampler(Reader reader) : reader_(std::move(reader)) {}

  void start();
  /// Nothing when the GPU could not be read.
  std::optional<GpuSamples> stop();

 private:
  Reader reader_;
  GpuSamples samples_;
  std::jthread thread_;  // ends before what it writes to
};

}  // namespace longhaul::cli
