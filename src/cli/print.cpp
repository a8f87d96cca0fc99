#include "cli/print.h"

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace longhaul::cli {

void print_text(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

void flush_output() {
  if (std::fflush(stdout) != 0) {
    fail_output();
  }
}

void fail_output() {
  throw base::SystemError({.where = "standard output",
                           .what = "cannot write: " + std::generic_category().message(errno)});
}

}  // namespace longhaul::cli
