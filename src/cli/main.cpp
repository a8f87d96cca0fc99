// The program: words → command → validated Config → the command's function. The only place that
// prints errors and maps them to exit codes: 0 done, 2 the user can fix it, 3 the machine, 4 our
// bug.
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/versions.h"
#include "config/options.h"
#include "config/validate.h"

namespace longhaul::cli {
namespace {

using Words = std::vector<std::string>;

constexpr int kUserExit = 2;
constexpr int kMachineExit = 3;
constexpr int kBugExit = 4;

void print_problems(const base::Error& error) {
  for (const base::Problem& problem : error.problems()) {
    fmt::print(stderr, "longhaul: error: {}\n", problem.line());
  }
}

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

/// Sets what the options file asks for and is not set yet, then starts over: libraries read their
/// variables when they are loaded. The second start finds everything set.
void apply_environment(const config::ParsedOptions& parsed, char** argv) {
  bool changed = false;
  for (const auto& [name, value] : parsed.environment) {
    if (::getenv(name.c_str()) == nullptr) {                   // NOLINT(concurrency-mt-unsafe)
      ::setenv(name.c_str(), value.c_str(), 0);                // NOLINT(concurrency-mt-unsafe)
      changed = ::getenv(name.c_str()) != nullptr || changed;  // NOLINT(concurrency-mt-unsafe)
    }
  }
  if (changed) {
    ::execv("/proc/self/exe", argv);
    throw base::SystemError({.where = "ENV", .what = "cannot start again with the variables set"});
  }
}

int run_command(const config::Config& config) {
  switch (config.command) {
    case config::Command::kSft:
    case config::Command::kPt:
      return run_sft(config);
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
    case config::Command::kEval:
    case config::Command::kBench:
    case config::Command::kWebUi:
      break;
  }
  throw base::InternalError({.where = "longhaul", .what = "command without a function"});
}

/// Rank 0 speaks; notices of `data` go to standard error, because its standard output is data.
void install_log(const config::Config& config) {
  if (config.launch.rank != 0) {
    return;
  }
  std::FILE* stream = config.command == config::Command::kData ? stderr : stdout;
  base::set_log_sink([stream](const std::string& line) {
    fmt::print(stream, "{}\n", line);
    std::fflush(stream);
  });
}

int run_with_options(config::Command command, const Words& words, char** argv) {
  const config::ParsedOptions parsed = config::parse_options(command, words);
  if (parsed.wants_help) {
    fmt::print("{}", config::command_help(command));
    return 0;
  }
  if (!config::is_available(command)) {
    throw base::UserError({.where = fmt::format("longhaul {}", config::command_name(command)),
                           .what = "not available yet"});
  }
  if (command == config::Command::kDoctor) {
    if (!parsed.problems.empty()) {
      throw base::UserError(parsed.problems);
    }
    return run_doctor(parsed.config);
  }
  apply_environment(parsed, argv);
  const config::LaunchInfo launch = read_launch_info();
  config::Config config;
  try {
    config = config::load_config(parsed, launch);
  } catch (const base::Error&) {
    // Every rank sees the same options; one of them says what is wrong with them.
    if (launch.rank != 0) {
      return kUserExit;
    }
    throw;
  }
  install_log(config);
  for (const std::string& note : config.notes) {
    base::log_line(note);
  }
  return run_command(config);
}

int run(const Words& words, char** argv) {
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
  return run_with_options(command_of(words[0]), Words(words.begin() + 1, words.end()), argv);
}

/// One line for what is not an error of ours; libtorch's texts carry a stack trace below the first
/// line.
int report_foreign(const std::string& text, int code) {
  const base::Problem problem{.where = "longhaul", .what = text.substr(0, text.find('\n'))};
  fmt::print(stderr, "longhaul: error: {}\n", problem.line());
  return code;
}

int run_and_report(int argc, char** argv) {
  try {
    return run(Words(argv + 1, argv + argc), argv);
  } catch (const base::UserError& error) {
    print_problems(error);
    return kUserExit;
  } catch (const base::SystemError& error) {
    print_problems(error);
    return kMachineExit;
  } catch (const base::Error& error) {
    print_problems(error);
    return kBugExit;
  } catch (const c10::OutOfMemoryError& error) {
    return report_foreign(fmt::format("out of memory: {}. longhaul plan shows what fits",
                                      error.what_without_backtrace()),
                          kMachineExit);
  } catch (const c10::Error& error) {
    return report_foreign(error.what_without_backtrace(), kBugExit);
  } catch (const std::bad_alloc&) {
    return report_foreign("out of memory. longhaul plan shows what fits", kMachineExit);
  } catch (const std::exception& error) {
    return report_foreign(error.what(), kBugExit);
  }
}

}  // namespace
}  // namespace longhaul::cli

int main(int argc, char** argv) { return longhaul::cli::run_and_report(argc, argv); }
