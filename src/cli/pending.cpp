// Commands that have no file of their own yet. Weak, so that a command's own file replaces its line
// here.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "config/option_value.h"

namespace longhaul::cli {
namespace {

[[noreturn]] void not_available(const std::string& command) {
  throw base::UserError({.where = "longhaul " + command, .what = "not available yet"});
}

}  // namespace

[[gnu::weak]] int run_sft(const config::Config& /*config*/) { not_available("sft"); }
[[gnu::weak]] int run_plan(const config::Config& /*config*/) { not_available("plan"); }
[[gnu::weak]] int run_infer(const config::Config& /*config*/) { not_available("infer"); }
[[gnu::weak]] int run_export(const config::Config& /*config*/) { not_available("export"); }
[[gnu::weak]] int run_data(const config::Config& /*config*/) { not_available("data"); }

[[gnu::weak]] config::LaunchInfo read_launch_info() {
  config::LaunchInfo launch;
  const char* text = std::getenv("NPROC_PER_NODE");  // NOLINT(concurrency-mt-unsafe): one thread
  if (text != nullptr && *text != '\0') {
    const auto ranks = config::parse_integer(text);
    if (!ranks || *ranks < 1 || *ranks > 4096) {
      throw base::UserError({.where = "NPROC_PER_NODE",
                             .what = "impossible number of ranks",
                             .got = text,
                             .expected = "an integer from 1 to 4096"});
    }
    launch.ranks = *ranks;
    launch.local_ranks = *ranks;
  }
  return launch;
}

}  // namespace longhaul::cli
