// `longhaul doctor`: one line per part of the machine, `ok`, a note, or what to do about it.
#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/versions.h"
#include "config/version.h"
#include "dist/mpi_library.h"

namespace longhaul::cli {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kHubSeconds = 1.5;

void print_line(const std::string& part, const std::string& state, const std::string& text) {
  fmt::print("{:<8} {:<5} {}\n", part, state, text);
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGiB);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
  return value == nullptr ? std::string() : std::string(value);
}

/// The CPU can train when libtorch multiplies correctly here.
bool cpu_computes() {
  const at::Tensor product = at::mm(at::full({3, 5}, 2.0), at::full({5, 2}, 0.5));
  return product.sum().item<double>() == 30.0;
}

bool report_cpu() {
  const bool works = cpu_computes();
  print_line("cpu", works ? "ok" : "FAIL",
             works ? fmt::format("{} cores, {}; fp32 and bf16 training", usable_cores(),
                                 at::get_cpu_capability())
                   : "libtorch computes wrongly here: install torch 2.11.0 again (./quickstart)");
  print_line("libtorch", "ok", torch_version());
  return works;
}

void report_gpus() {
  const GpuReport report = find_gpus();
  if (!report.driver) {
    print_line("driver", "note", "no NVIDIA driver: ranks compute on the CPU");
  } else {
    print_line("driver", "ok", *report.driver);
    print_line("CUDA", "ok", report.cuda.value_or("unknown version") + " (driver)");
  }
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    const GpuInfo& gpu = report.gpus[i];
    print_line(fmt::format("gpu {}", i), "note",
               fmt::format("{}, {} of {} free; this build trains on the CPU only", gpu.name,
                           gib(gpu.free_bytes), gib(gpu.total_bytes)));
  }
  if (report.gpus.empty()) {
    print_line("gpu", "note", "none");
  }
}

void report_library(const std::string& name, const std::optional<std::string>& version,
                    const std::string& otherwise) {
  print_line(name, version ? "ok" : "note", version.value_or("not present: " + otherwise));
}

void report_memory_and_disk() {
  const std::int64_t memory = available_memory_bytes();
  print_line("memory", memory > 0 ? "ok" : "note",
             memory > 0 ? gib(memory) + " available" : "the system does not say how much is free");
  std::string cache = variable("XDG_CACHE_HOME");
  if (cache.empty()) {
    cache = variable("HOME") + "/.cache";
  }
  for (const std::string& folder : std::vector<std::string>{".", cache + "/longhaul"}) {
    const auto free = free_disk_bytes(folder);
    const bool enough = free && *free > static_cast<std::int64_t>(kGiB);
    print_line("disk", enough ? "ok" : "note",
               free ? fmt::format("{} free in {}{}", gib(*free), folder,
                                  enough ? "" : ": make room for checkpoints")
                    : "cannot be asked: " + folder);
  }
}

void report_hub() {
  std::string host = variable("HF_ENDPOINT");
  if (const auto scheme = host.find("://"); scheme != std::string::npos) {
    host.erase(0, scheme + 3);
  }
  host = host.substr(0, host.find_first_of(":/"));
  if (host.empty()) {
    host = "huggingface.co";
  }
  const bool reached = reaches_host(host, kHubSeconds);
  print_line("hub", reached ? "ok" : "note",
             reached ? host + " answers"
                     : host + " does not answer: use models and data sets from this machine");
}

}  // namespace

int run_doctor(const config::Config& /*config*/) {
  print_line("longhaul", "ok", std::string(config::program_version()));
  const bool can_train = report_cpu();
  report_gpus();
  report_library("cuDNN", cudnn_version(), "needed by GPU ranks only");
  report_library("NCCL", nccl_version(), "needed by GPU ranks only");
  report_library(
      "MPI", dist::mpi_version(),
      "one CPU rank only. For more: apt install openmpi-bin libopenmpi-dev, then build again");
  report_memory_and_disk();
  report_hub();
  return can_train ? 0 : 3;
}

}  // namespace longhaul::cli
