// The MPI transport is a shared object of its own, loaded when more than one CPU rank is asked for:
// the program runs without MPI installed, then with one rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "dist/communicator.h"
#include "dist/operation_observer.h"

namespace longhaul::dist {

/// What the loaded object needs to know; plain data across the border.
struct MpiWorldRequest {
  std::int64_t rank = 0;  // as the launch environment says; checked against MPI's own view
  std::int64_t ranks = 1;
  OperationObserver* observer = nullptr;  // may be null; outlives the communicator
};

/// `liblonghaul_mpi.so` beside the program, in ../lib, or (build tree) up to two folders above;
/// nothing when absent.
std::optional<std::filesystem::path> find_mpi_library();

/// Says that the object is not there, and where it belongs.
base::Problem missing_mpi_library();

/// `Open MPI v4.1.4 …`; SystemError that says what is missing.
std::string load_mpi_version();

/// The same, or nothing when the object or MPI is missing.
std::optional<std::string> mpi_version();

/// All ranks of the job through MPI. SystemError when MPI is missing or its ranks are not those of
/// the environment.
///
/// Order   collective: all ranks call it once, on the thread that will call the communicator
/// Errors  destroyed without an exception in flight it waits for the other ranks and finalises MPI;
/// otherwise MPI is
///         left as it is, so that a failing rank never waits for its peers
std::unique_ptr<Communicator> open_mpi_world(const MpiWorldRequest& request);

}  // namespace longhaul::dist
