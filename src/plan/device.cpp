#include "plan/device.h"

#include <algorithm>
#include <array>

namespace longhaul::plan {
namespace {

/// Of data sheets.
struct DeviceRow {
  std::string_view name;
  double memory_gb;        // 1e9 bytes
  double peak_tflops;      // dense bf16
  double memory_tb_per_s;  // of its own memory
  double host_gb_per_s;    // PCIe, one direction
  double device_gb_per_s;  // to another device of the host, one direction: NVLink, else PCIe
};

constexpr DeviceRow kH200{"h200", 141, 989, 4.8, 64, 450};

constexpr std::array kDevices = {
    kH200,
    DeviceRow{"h100", 80, 989, 3.35, 64, 450},
    DeviceRow{"h20", 96, 148, 4.0, 64, 450},
    DeviceRow{"a100-80", 80, 312, 2.04, 32, 300},
    DeviceRow{"a100-40", 40, 312, 1.56, 32, 300},
    DeviceRow{"a800", 80, 312, 2.04, 32, 200},
    DeviceRow{"l40s", 48, 362, 0.864, 32, 32},
    DeviceRow{"a6000", 48, 155, 0.768, 32, 32},
    DeviceRow{"rtx4090", 24, 165, 1.008, 32, 32},
    DeviceRow{"rtx3090", 24, 71, 0.936, 32, 32},
};

/// A driver's names of devices in the table; boards of other forms (NVL, PCIe) have other peaks.
struct DriverName {
  std::string_view text;
  std::string_view name;
};
constexpr std::array kDriverNames = {
    DriverName{"NVIDIA H200", "h200"},
    DriverName{"NVIDIA H100 80GB HBM3", "h100"},
    DriverName{"NVIDIA H20", "h20"},
    DriverName{"NVIDIA A100-SXM4-80GB", "a100-80"},
    DriverName{"NVIDIA A100 80GB PCIe", "a100-80"},
    DriverName{"NVIDIA A100-SXM4-40GB", "a100-40"},
    DriverName{"NVIDIA A100-PCIE-40GB", "a100-40"},
    DriverName{"NVIDIA A800-SXM4-80GB", "a800"},
    DriverName{"NVIDIA L40S", "l40s"},
    DriverName{"NVIDIA RTX A6000", "a6000"},
    DriverName{"NVIDIA GeForce RTX 4090", "rtx4090"},
    DriverName{"NVIDIA GeForce RTX 3090", "rtx3090"},
};

/// FLOP/s of one CPU thread over a whole step in fp32: half of what its matrix products alone
/// reach.
constexpr double kCpuThreadFlops = 60e9;

/// An all-to-all of which a rank sends `bytes`, and its time.
struct Exchange {
  double bytes;
  double seconds;
};
constexpr double kMiB = 1024.0 * 1024.0;
/// Between two H200s: 76 to 94 us for the smallest, then 89 GB/s at 16 MiB, 168 at 64, 244 at 256
/// and 309 at 1 GiB.
constexpr std::array kExchanges = {
    Exchange{0, 85e-6},
    Exchange{16 * kMiB, 16 * kMiB / 89e9},
    Exchange{64 * kMiB, 64 * kMiB / 168e9},
    Exchange{256 * kMiB, 256 * kMiB / 244e9},
    Exchange{1024 * kMiB, 1024 * kMiB / 309e9},
};

/// What is measured on an H200, scaled by the data sheets.
DeviceRates scaled_rates(const DeviceRow& row) {
  const double compute = row.peak_tflops / kH200.peak_tflops;
  const double host = row.host_gb_per_s / kH200.host_gb_per_s;
  DeviceRates rates;
  rates.product_flops_per_s *= compute;
  for (AttentionRate* rate :
       {&rates.attention_forward, &rates.attention_backward, &rates.flash_forward,
        &rates.flash_backward, &rates.deterministic_backward}) {
    rate->flops_per_s *= compute;
  }
  rates.memory_bytes_per_s *= row.memory_tb_per_s / kH200.memory_tb_per_s;
  rates.to_host_bytes_per_s *= host;
  rates.from_host_bytes_per_s *= host;
  rates.link_scale = row.device_gb_per_s / kH200.device_gb_per_s;
  return rates;
}

}  // namespace

AttentionRate forward_rate(const DeviceRates& rates, AttentionKind kind) {
  return kind == AttentionKind::kCudnn ? rates.attention_forward : rates.flash_forward;
}

AttentionRate backward_rate(const DeviceRates& rates, AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kCudnn:
      return rates.attention_backward;
    case AttentionKind::kFlash:
      return rates.flash_backward;
    case AttentionKind::kDeterministicFlash:
      break;
  }
  return rates.deterministic_backward;
}

std::int64_t plannable_bytes(std::int64_t free_bytes, std::int64_t communicators) {
  const std::int64_t taken = kContextBytes + communicators * kCommunicatorBytes;
  return planned_share(std::max<std::int64_t>(0, free_bytes - taken));
}

double exchange_seconds(const DeviceRates& rates, double bytes) {
  // Between two measured sizes the time grows evenly, beyond the last it goes on as there.
  std::size_t above = 1;
  while (above + 1 < kExchanges.size() && kExchanges[above].bytes < bytes) {
    ++above;
  }
  const Exchange& low = kExchanges[above - 1];
  const Exchange& high = kExchanges[above];
  const double share = (bytes - low.bytes) / (high.bytes - low.bytes);
  const double floor = kExchanges.front().seconds;
  const double seconds = low.seconds + share * (high.seconds - low.seconds);
  return floor + (seconds - floor) / rates.link_scale;
}

std::optional<DeviceFacts> find_device(std::string_view name) {
  for (const DeviceRow& row : kDevices) {
    if (row.name == name) {
      return DeviceFacts{.name = std::string(name),
                         .is_measured = row.name == kH200.name,
                         .memory_bytes = static_cast<std::int64_t>(row.memory_gb * 1e9),
                         .peak_flops_per_s = row.peak_tflops * 1e12,
                         .rates = scaled_rates(row)};
    }
  }
  return std::nullopt;
}

std::optional<DeviceFacts> device_of_driver(std::string_view driver_name) {
  for (const DriverName& row : kDriverNames) {
    if (row.text == driver_name) {
      return find_device(row.name);
    }
  }
  return std::nullopt;
}

std::optional<double> peak_flops_of(std::string_view driver_name) {
  const auto device = device_of_driver(driver_name);
  return device ? std::optional(device->peak_flops_per_s) : std::nullopt;
}

std::string device_names() {
  std::string names;
  for (const DeviceRow& row : kDevices) {
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return names;
}

DeviceFacts cpu_device(std::int64_t threads, std::int64_t memory_bytes) {
  return {.name = "cpu",
          .is_cpu = true,
          .memory_bytes = memory_bytes,
          .flops_per_s = kCpuThreadFlops * static_cast<double>(threads)};
}

}  // namespace longhaul::plan
