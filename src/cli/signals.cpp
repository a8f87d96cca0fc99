#include "cli/signals.h"

#include <csignal>

namespace longhaul::cli {

void set_start_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_DFL);  // some starters ignore it
}

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace longhaul::cli
