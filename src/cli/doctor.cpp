// `longhaul doctor`: one line per part of the machine, `ok`, a note, or what to do about it.
#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "cli/data_environment.h"
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

/// What more than one CPU rank needs.
void report_mpi() {
  try {
    print_line("MPI", "ok", dist::load_mpi_version());
  } catch (const base::SystemError& error) {
    base::Problem problem = error.problems().front();
    problem.where.clear();  // the line begins with it
    print_line("MPI", "note", "one CPU rank only: " + problem.line());
  }
}

void report_disk(const std::filesystem::path& folder, const std::string& option) {
  const std::optional<std::int64_t> free = free_disk_bytes(folder);
  if (const auto why = why_not_writable(folder)) {
    print_line("disk", "note",
               fmt::format("{} cannot be written: {}. Name another folder with {}", folder.string(),
                           *why, option));
  } else if (!free) {
    print_line("disk", "note", "cannot be asked: " + folder.string());
  } else {
    const bool enough = *free > static_cast<std::int64_t>(kGiB);
    print_line("disk", enough ? "ok" : "note",
               fmt::format("{} free in {}{}", gib(*free), folder.string(),
                           enough ? "" : ": make room for checkpoints"));
  }
}

void report_memory_and_disks() {
  const std::int64_t memory = available_memory_bytes();
  print_line("memory", memory > 0 ? "ok" : "note",
             memory > 0 ? gib(memory) + " available" : "the system does not say how much is free");
  report_disk(".", "--output_dir");
  try {
    report_disk(default_cache(), "--cache_dir");
  } catch (const base::Error& error) {
    print_line("disk", "note", error.problems().front().line());
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
  report_mpi();
  report_memory_and_disks();
  report_hub();
  return can_train ? 0 : 3;
}

}  // namespace longhaul::cli
