#include "cli/threads.h"

#include <cstdlib>
#include <cstring>

namespace longhaul::cli {
namespace {

/// The value that hide_unusable_count took out; null when there was none.
const char* hidden_count = nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

/// Takes an unusable OMP_NUM_THREADS out of the process's own list of variables. The C library has
/// not seen that list yet, so getenv and unsetenv do not work here.
void hide_unusable_count(int /*argc*/, char** /*argv*/, char** variables) {
  constexpr const char* kPrefix = "OMP_NUM_THREADS=";
  char** kept = variables;
  for (char** entry = variables; *entry != nullptr; ++entry) {
    const bool is_count = std::strncmp(*entry, kPrefix, std::strlen(kPrefix)) == 0;
    if (is_count && !dist::is_thread_count(*entry + std::strlen(kPrefix))) {
      hidden_count = *entry + std::strlen(kPrefix);
    } else {
      *kept++ = *entry;
    }
  }
  *kept = nullptr;
}

// Functions in this section run before the initialisation of any library, libgomp's among them.
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const run_before_libraries)(int, char**, char**) = hide_unusable_count;

}  // namespace

void restore_thread_count() {
  if (hidden_count != nullptr) {
    ::setenv("OMP_NUM_THREADS", hidden_count, 1);  // NOLINT(concurrency-mt-unsafe): one thread
  }
}

bool lacks_wait_policy(const dist::Environment& environment) {
  const bool starts_ranks = environment("NPROC_PER_NODE").value_or("1") != "1";  // they get it
  return !dist::has_wait_policy(environment) && !starts_ranks &&
         environment("OMP_NUM_THREADS").value_or("") != "1" && dist::available_cores() > 1;
}

}  // namespace longhaul::cli
