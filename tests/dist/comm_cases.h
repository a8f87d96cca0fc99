// What every transport must do, as plain functions of one rank: run by threads and by MPI processes
// alike. Each throws std::runtime_error with a message when a value is wrong.
#pragma once

#include <span>
#include <string_view>

#include "dist/communicator.h"

namespace longhaul::dist_test {

struct CommCase {
  std::string_view name;
  void (*run)(dist::Communicator&);
};

/// All cases; each is collective and leaves the communicator usable.
std::span<const CommCase> comm_cases();

}  // namespace longhaul::dist_test
