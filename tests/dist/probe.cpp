// A tiny program with ranks, for tests of transports and launcher: `probe MODE …` does what its
// mode says. It uses the launch code exactly as the program does.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cli/launch.h"
#include "dist/comm_cases.h"
#include "dist/comm_error.h"
#include "dist/device_cases.h"
#include "dist/key_store.h"
#include "dist/process_group.h"
#include "dist/stop_request.h"
#include "ops/cuda_library.h"

namespace longhaul::dist_test {
namespace {

using std::chrono::milliseconds;

/// Options as NAME=VALUE words.
struct Options {
  std::string mode;
  std::map<std::string, std::string> values;

  [[nodiscard]] std::int64_t number(const std::string& name, std::int64_t otherwise) const {
    const auto found = values.find(name);
    return found == values.end() ? otherwise : std::stoll(found->second);
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    const auto found = values.find(name);
    return found == values.end() ? "" : found->second;
  }
};

struct Rank {
  cli::RankSession& session;
  dist::ProcessGroup& group;
  const Options& options;
};

/// Leaves a file with the rank's process, so that a test can signal it.
void note_pid(std::int64_t rank, const Options& options) {
  const std::string folder = options.text("pids");
  if (!folder.empty()) {
    std::ofstream(fmt::format("{}/{}", folder, rank)) << getpid() << std::endl;
  }
}

bool is_on_gpu(const Options& options) { return options.text("device") == "cuda"; }

/// A GPU for each rank of the machine, or with `share=1` the first for all, each of which is a host of its own to NCCL.
int gpu_of(const config::LaunchInfo& info, const Options& options) {
  if (options.number("share", 0) == 0) {
    return static_cast<int>(info.local_rank);
  }
  setenv("NCCL_HOSTID", fmt::format("host-{}", info.rank).c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  return 0;
}

void run_cases(const Rank& rank) {
  for (const CommCase& one : comm_cases()) {
    one.run(*rank.group.world);
  }
  const auto gpu = static_cast<c10::DeviceIndex>(gpu_of(rank.session.info(), rank.options));
  const at::Device device = is_on_gpu(rank.options) ? at::Device(at::kCUDA, gpu) : at::kCPU;
  run_device_cases(*rank.group.world, device);
  run_device_cases(*dist::make_single(), device);
  std::vector<float> large(3'000'017, static_cast<float>(rank.group.world->rank() + 1));
  rank.group.world->all_reduce_sum("large sum", large);
  const auto n = static_cast<float>(rank.group.world->size());
  for (const float value : large) {
    if (value != n * (n + 1) / 2) {
      throw std::runtime_error("large sum is wrong");
    }
  }
  fmt::print("rank {} of {}: {} cases\n", rank.group.world->rank(), rank.group.world->size(),
             comm_cases().size());
}

void show_environment(const Rank& rank) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  const char* mark = std::getenv("PROBE_MARK");
  fmt::print("rank {} local {} of {} local {} threads {} mark {} sp {} dp {} words {}\n",
             rank.session.info().rank, rank.session.info().local_rank, rank.session.info().ranks,
             rank.session.info().local_ranks, threads == nullptr ? "none" : threads,
             mark == nullptr ? "none" : mark, rank.group.sp->rank(), rank.group.dp->rank(),
             rank.options.text("words"));
}

/// Seconds per exchange of `bytes` with every peer.
void time_exchanges(const Rank& rank) {
  dist::Communicator& comm = *rank.group.world;
  const std::int64_t bytes = rank.options.number("bytes", 1 << 20);
  const std::vector<std::int64_t> blocks(static_cast<std::size_t>(comm.size()), bytes);
  std::vector<std::byte> send(static_cast<std::size_t>(bytes * comm.size()));
  std::vector<std::byte> receive(send.size());
  constexpr int kTimes = 50;
  for (int i = 0; i < kTimes; ++i) {
    if (i == 5) {
      comm.reset_counters();  // the first ones pay for memory
    }
    comm.all_to_all("exchange", send.data(), blocks, receive.data(), blocks);
  }
  fmt::print(
      "rank {}: {:.1f} us, {:.3f} GB/s\n", comm.rank(),
      comm.counters().exchange_s / (kTimes - 5) * 1e6,
      static_cast<double>(comm.counters().exchange_bytes) / comm.counters().exchange_s / 1e9);
}

/// What goes wrong on rank `who` at step `at`.
void misbehave(const std::string& how, const Rank& rank) {
  if (how == "kill") {
    raise(SIGKILL);
  } else if (how == "segv") {
    raise(SIGSEGV);
  } else if (how == "stop") {
    raise(SIGSTOP);
  } else if (how == "exit") {
    _exit(0);
  } else if (how == "user") {
    throw base::UserError(
        base::Problem{.where = "data.jsonl:7", .what = "is wrong on one rank only"});
  } else if (how == "system") {
    throw base::SystemError({.where = "/disk", .what = "no space left"});
  } else if (how == "bug") {
    LONGHAUL_ASSERT(rank.options.mode.empty(), "one rank has a bug");
  } else if (how == "abort") {
    rank.group.world->abort("memory is damaged");
  } else if (how == "sleep") {
    std::this_thread::sleep_for(std::chrono::minutes(5));
  } else if (how == "size") {
    std::vector<float> other(50, 0.F);
    rank.group.world->all_reduce_sum("sum of gradients", other);
  }
}

/// Rank `who` goes wrong as `early` says before its launcher knows it, once rank 0 has come up.
void misbehave_early(const Options& options) {
  const char* rank_of_mpi = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* rank = rank_of_mpi == nullptr ? std::getenv("RANK") : rank_of_mpi;
  const std::string how = options.text("early");
  if (how.empty() || rank == nullptr || options.text("who") != rank) {
    return;
  }
  while (!std::ifstream(options.text("pids") + "/0")) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  if (how == "kill") {
    raise(SIGKILL);
  } else if (how == "exit") {
    fmt::print(stderr, "no room for this rank\n");
    std::fflush(stderr);
    _exit(9);
  }
  std::this_thread::sleep_for(std::chrono::minutes(5));
}

/// Steps like a trainer: a sum of gradients, the stop flag agreed with it, an end of the step.
int train(const Rank& rank) {
  const std::int64_t steps = rank.options.number("steps", 1'000'000);
  const std::int64_t who = rank.options.number("who", -1);
  const std::int64_t at = rank.options.number("at", -1);
  std::vector<float> gradients(20'000, 1.F);
  const std::string noise(static_cast<std::size_t>(rank.options.number("noise", 0)), '.');
  rank.session.status().set_activity("step");
  for (std::int64_t step = 1; step <= steps; ++step) {
    rank.group.set_step(step);
    rank.session.status().set_step(step);
    std::this_thread::sleep_for(milliseconds(rank.options.number("ms", 20)));
    if (rank.session.info().rank == who && step == at) {
      misbehave(rank.options.text("how"), rank);
    }
    if (rank.options.text("how") == "all-user" && step == at) {
      throw base::UserError(
          base::Problem{.where = "data.jsonl:7", .what = "is wrong on every rank"});
    }
    rank.group.world->all_reduce_sum("sum of gradients", gradients);
    const dist::StopRequest stop = dist::stop_requested();
    std::array<double, 2> wish{static_cast<double>(stop.count), static_cast<double>(stop.signal)};
    rank.group.world->all_reduce_max("stop flag", wish);
    rank.session.status().step_has_ended(step);
    if (rank.session.info().rank == 0) {
      fmt::print("step {}\n{}", step, noise);
      std::fflush(stdout);
    }
    if (rank.options.number("all_speak", 0) > 0) {
      fmt::print("rank {} step {}\n", rank.session.info().rank, step);
      std::fflush(stdout);
    }
    if (wish[0] > 0) {
      fmt::print("rank {} checkpoint {}\n", rank.session.info().rank, step);
      return 128 + static_cast<int>(wish[1]);
    }
  }
  return 0;
}

/// Every rank leaves a word for the others, which may hold any byte.
void meet(const Rank& rank) {
  const dist::MeetingPlace place = dist::read_meeting_place(dist::process_environment());
  const auto word_of = [](std::int64_t one) { return fmt::format("word{}\n of {}", '\0', one); };
  const auto& info = rank.session.info();
  const auto store = dist::open_key_store(place, info.rank, milliseconds(20'000));
  store->set(std::to_string(info.rank), word_of(info.rank));
  for (std::int64_t other = 0; other < info.ranks; ++other) {
    if (store->get(std::to_string(other)) != word_of(other)) {
      throw std::runtime_error("a word of another rank has changed");
    }
  }
  store->set(fmt::format("{} has read", info.rank), "");
  for (std::int64_t other = 0; info.rank == 0 && other < info.ranks; ++other) {
    store->get(fmt::format("{} has read", other));  // the server stays until all have
  }
  fmt::print("rank {} has met {}\n", info.rank, info.ranks);
}

/// Ranks without a communicator (`comm=none`), on GPUs (`device=cuda`), or over MPI.
dist::ProcessGroup make_group(cli::RankSession& session, const Options& options) {
  if (options.text("comm") == "none") {
    return dist::make_process_group(dist::make_single(), {});
  }
  const config::LaunchInfo& info = session.info();
  const std::int64_t sp = options.number("sp", info.ranks);
  const bool on_gpu = is_on_gpu(options);
  if (on_gpu) {
    ops::load_cuda_backend(gpu_of(info, options), options.text("library"));
  }
  return dist::make_process_group(
      dist::open_world(info, &session.status(), on_gpu ? at::kCUDA : at::kCPU),
      {.dp = info.ranks / sp, .sp = sp});
}

int run_rank(cli::RankSession& session, const Options& options) {
  session.install_stop_handlers();
  note_pid(session.info().rank, options);
  dist::ProcessGroup group = make_group(session, options);
  group.set_deadline(milliseconds(options.number("deadline", 60'000)));
  const Rank rank{.session = session, .group = group, .options = options};
  if (options.mode == "cases") {
    run_cases(rank);
    return 0;
  }
  if (options.mode == "environment") {
    show_environment(rank);
    return 0;
  }
  if (options.mode == "meet") {
    meet(rank);
    return 0;
  }
  if (options.mode == "exchange") {
    time_exchanges(rank);
    return 0;
  }
  if (options.mode == "train") {
    return train(rank);
  }
  throw base::UserError(base::Problem{.where = options.mode, .what = "unknown mode"});
}

int run(cli::RankSession& session, const Options& options, char** argv) {
  const cli::LaunchDecision decision = cli::decide_launch(
      dist::process_environment(),
      is_on_gpu(options) ? config::DeviceChoice::kCuda : config::DeviceChoice::kCpu);
  for (const std::string& notice : decision.notices) {
    fmt::print(stderr, "longhaul: {}\n", notice);
  }
  if (decision.kind == cli::LaunchDecision::Kind::kStartRanks) {
    return cli::run_ranks(decision, argv);
  }
  const int code = run_rank(session, options);
  session.report_finished(code);
  return code;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      options.mode = options.mode.empty() ? word : options.mode;
    } else {
      options.values[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  return options;
}

}  // namespace
}  // namespace longhaul::dist_test

int main(int argc, char** argv) {
  using namespace longhaul;  // NOLINT(google-build-using-namespace): main of a test program
  std::optional<cli::RankSession> session;
  try {
    const dist_test::Options options = dist_test::parse(argc, argv);
    dist_test::misbehave_early(options);
    session.emplace(dist::process_environment());
    return dist_test::run(*session, options, argv);
  } catch (const std::exception& error) {
    const bool is_peer = dynamic_cast<const dist::PeerError*>(&error) != nullptr;
    int code = 4;
    if (dynamic_cast<const base::UserError*>(&error) != nullptr) {
      code = 2;
    } else if (dynamic_cast<const base::SystemError*>(&error) != nullptr) {
      code = 3;
    }
    if (session) {
      session->report_error(code, {error.what()}, is_peer);
    } else {
      fmt::print(stderr, "longhaul: error: {}\n", error.what());
    }
    return code;
  }
}
