// Faults of communication as errors: one place gives them the form `rank R, step S, OPERATION:
// what`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace longhaul::dist {

/// The cause lies in another rank (it failed, left, or came too late). A launcher shows such an
/// error only when the rank at fault has left no better one.
class PeerError : public base::SystemError {
 public:
  explicit PeerError(base::Problem problem) : base::SystemError(std::move(problem)) {}
};

/// `rank 1, step 7, exchange q,k,v`: where a fault happened.
std::string operation_place(int rank, std::int64_t step, std::string_view operation);

}  // namespace longhaul::dist
