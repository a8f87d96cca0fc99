// Commands that have no file of their own yet. Weak, so that a command's own file replaces its line
// here.
#include <string>

#include "base/error.h"
#include "cli/command.h"

namespace longhaul::cli {
namespace {

[[noreturn]] void not_available(const std::string& command) {
  throw base::UserError({.where = "longhaul " + command, .what = "not available yet"});
}

}  // namespace

[[gnu::weak]] int run_sft(const config::Config& /*config*/, RankSession& /*session*/) {
  not_available("sft");
}
[[gnu::weak]] int run_plan(const config::Config& /*config*/) { not_available("plan"); }
[[gnu::weak]] int run_infer(const config::Config& /*config*/) { not_available("infer"); }
[[gnu::weak]] int run_export(const config::Config& /*config*/) { not_available("export"); }
[[gnu::weak]] int run_data(const config::Config& /*config*/) { not_available("data"); }

}  // namespace longhaul::cli
