#include "dist/comm_error.h"

#include <fmt/format.h>

namespace longhaul::dist {

std::string operation_place(int rank, std::int64_t step, std::string_view operation) {
  return fmt::format("rank {}, step {}, {}", rank, step, operation);
}

}  // namespace longhaul::dist
