// The program: words → command → validated Config → ranks if they must be started → the command's
// function. The only place that maps errors to exit codes: 0 done, 2 the user can fix it, 3 the
// machine, 4 our bug.
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/machine.h"
#include "cli/print.h"
#include "cli/signals.h"
#include "cli/threads.h"
#include "cli/versions.h"
#include "config/options.h"
#include "config/rules.h"
#include "config/validate.h"
#include "dist/comm_error.h"
#include "dist/rendezvous.h"

namespace longhaul::cli {
namespace {

using Words = std::vector<std::string>;
using Session = std::optional<RankSession>;

constexpr int kUserExit = 2;
constexpr int kMachineExit = 3;
constexpr int kBugExit = 4;

/// How the program ends when it does not end well.
struct Failure {
  int exit_code = kBugExit;
  std::vector<std::string> lines{};
  bool is_peers_fault = false;
};

config::Command command_of(const std::string& word) {
  const auto command = config::find_command(word);
  if (!command) {
    const auto nearest = config::nearest_name(word, config::command_names());
    throw base::UserError({.where = word,
                           .what = "unknown command",
                           .got = {},
                           .expected = {},
                           .hint = nearest ? fmt::format("Did you mean longhaul {}?", *nearest)
                                           : "longhaul --help lists the commands"});
  }
  return *command;
}

bool is_set(const std::string& name) {
  return std::getenv(name.c_str()) != nullptr;  // NOLINT(concurrency-mt-unsafe): one thread so far
}

/// Sets what the options file asks for and is not set yet, and how threads wait, then starts over:
/// libraries read their variables when they are loaded. The second start finds everything set.
void apply_environment(config::Command command, const config::ParsedOptions& parsed, char** argv) {
  bool is_asked_for = false;
  for (const auto& [name, value] : parsed.environment) {
    if (!is_set(name)) {
      ::setenv(name.c_str(), value.c_str(), 0);  // NOLINT(concurrency-mt-unsafe): one thread so far
      is_asked_for = is_set(name) || is_asked_for;
    }
  }
  const bool sets_policy =
      config::computes(command) && lacks_wait_policy(dist::process_environment());
  if (sets_policy) {
    ::setenv(dist::kSpinVariable, dist::kSpinCount, 1);  // NOLINT(concurrency-mt-unsafe)
  }
  if (is_asked_for || sets_policy) {
    ::execv(base::program_file().c_str(), argv);  // by its path: the process keeps its name
    ::execv("/proc/self/exe", argv);              // the file may have been replaced since
  }
  if (is_asked_for) {
    throw base::SystemError({.where = "ENV", .what = "cannot start again with the variables set"});
  }
}

int run_command(const config::Config& config) {
  switch (config.command) {
    case config::Command::kPlan:
      return run_plan(config);
    case config::Command::kInfer:
      return run_infer(config);
    case config::Command::kExport:
      return run_export(config);
    case config::Command::kData:
      return run_data(config);
    case config::Command::kDoctor:
      return run_doctor(config);
    default:
      throw base::InternalError({.where = "longhaul", .what = "command without a function"});
  }
}

int run_alone(const config::Config& config) {
  const int code = run_command(config);
  if (config.command != config::Command::kInfer) {  // its results are in a file
    flush_output();
  }
  return code;
}

/// Rank 0 speaks; notices of `data` and `bench` go to standard error, because their standard output
/// is data.
void install_log(const config::Config& config) {
  if (config.launch.rank != 0) {
    return;
  }
  const bool prints_data =
      config.command == config::Command::kData || config.command == config::Command::kBench;
  std::FILE* stream = prints_data ? stderr : stdout;
  base::set_log_sink([stream](const std::string& line) { print_text(stream, line + '\n'); });
}

/// Starts the ranks, or trains (measures) as the rank that this process is.
int run_as_rank(const config::Config& config, const dist::Environment& environment,
                Session& session, char** argv) {
  const config::DeviceChoice device =
      config.on_cpu() ? config::DeviceChoice::kCpu : config::DeviceChoice::kCuda;
  const LaunchDecision decision = decide_launch(environment, device);
  if (decision.kind == LaunchDecision::Kind::kStartRanks) {
    return run_ranks(decision, argv);
  }
  install_log(config);
  for (const std::string& notice : decision.notices) {
    base::log_line(notice);
  }
  for (const std::string& note : config.notes) {
    base::log_line(note);
  }
  return config.command == config::Command::kBench ? run_bench(config, *session)
                                                   : run_sft(config, *session);
}

int run_with_options(config::Command command, const Words& words, Session& session, char** argv) {
  const config::ParsedOptions parsed = config::parse_options(command, words);
  if (parsed.wants_help) {
    fmt::print("{}", config::command_help(command));
    return 0;
  }
  if (!config::is_available(command)) {
    throw base::UserError({.where = fmt::format("longhaul {}", config::command_name(command)),
                           .what = "not available yet"});
  }
  const dist::Environment environment = dist::process_environment();
  if (command == config::Command::kDoctor) {
    if (!parsed.problems.empty()) {
      throw base::UserError(parsed.problems);
    }
    dist::check_thread_count(environment);
    return run_alone(parsed.config);
  }
  apply_environment(command, parsed, argv);
  const bool has_ranks = config::runs_on_ranks(command);
  if (has_ranks) {
    session.emplace(environment);
  }
  dist::check_thread_count(environment);
  const config::LaunchInfo launch = launch_info(command, environment, [] {
    return usable_gpus(std::getenv("CUDA_VISIBLE_DEVICES"));  // NOLINT: one thread
  });
  const config::Config config = config::load_config(parsed, launch);
  if (config::is_training(command) ||
      (command == config::Command::kInfer && !config.data.val_dataset.empty())) {
    outlive_readers();
  }
  if (has_ranks) {
    return run_as_rank(config, environment, session, argv);
  }
  install_log(config);
  for (const std::string& note : config.notes) {
    base::log_line(note);
  }
  return run_alone(config);
}

int run(const Words& words, Session& session, char** argv) {
  if (words.empty()) {
    throw base::UserError(
        {.where = "longhaul", .what = "no command", .hint = "longhaul --help lists the commands"});
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    fmt::print("{}", config::general_help());
    return 0;
  }
  if (words[0] == "--version") {
    fmt::print("{}", version_text());
    return 0;
  }
  if (words[0] == "config-docs") {  // not in the help: writes docs/config.md
    fmt::print("{}", config::config_markdown());
    return 0;
  }
  return run_with_options(command_of(words[0]), Words(words.begin() + 1, words.end()), session,
                          argv);
}

Failure failure_of(const base::Error& error, int exit_code) {
  Failure failure{.exit_code = exit_code};
  for (const base::Problem& problem : error.problems()) {
    failure.lines.push_back(problem.line());
  }
  return failure;
}

/// An error of a library: one line (libtorch's texts carry a stack trace below the first).
Failure foreign_failure(const std::string& text, int exit_code) {
  const base::Problem problem{.where = "longhaul", .what = text.substr(0, text.find('\n'))};
  return {.exit_code = exit_code, .lines = {problem.line()}};
}

Failure current_failure() {
  try {
    throw;
  } catch (const base::UserError& error) {
    return failure_of(error, kUserExit);
  } catch (const dist::PeerError& error) {
    Failure failure = failure_of(error, kMachineExit);
    failure.is_peers_fault = true;
    return failure;
  } catch (const base::SystemError& error) {
    return failure_of(error, kMachineExit);
  } catch (const base::Error& error) {
    return failure_of(error, kBugExit);
  } catch (const c10::OutOfMemoryError& error) {
    return foreign_failure(fmt::format("out of memory: {}. longhaul plan shows what fits",
                                       error.what_without_backtrace()),
                           kMachineExit);
  } catch (const c10::Error& error) {
    return foreign_failure(error.what_without_backtrace(), kBugExit);
  } catch (const std::bad_alloc&) {
    return foreign_failure("out of memory. longhaul plan shows what fits", kMachineExit);
  } catch (const std::system_error& error) {  // a thread or a line that the system refused
    return foreign_failure(error.what(), kMachineExit);
  } catch (const std::exception& error) {
    return foreign_failure(error.what(), kBugExit);
  }
}

int run_and_report(int argc, char** argv) {
  Session session;
  try {
    const int code = run(Words(argv + 1, argv + argc), session, argv);
    if (session) {
      session->report_finished(code);
    }
    return code;
  } catch (...) {
    const Failure failure = current_failure();
    if (session) {
      session->report_error(failure.exit_code, failure.lines, failure.is_peers_fault);
      return failure.exit_code;
    }
    std::fflush(stdout);
    for (const std::string& line : failure.lines) {
      print_text(stderr, fmt::format("longhaul: error: {}\n", line));
    }
    return failure.exit_code;
  }
}

}  // namespace
}  // namespace longhaul::cli

int main(int argc, char** argv) {
  longhaul::cli::restore_thread_count();
  longhaul::cli::set_start_signals();
  return longhaul::cli::run_and_report(argc, argv);
}
