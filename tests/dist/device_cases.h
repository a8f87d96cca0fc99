// What every transport must do with the memory of tensors, on the CPU or on a GPU: run where
// comm_cases.h runs, and by a group of one. Throws std::runtime_error when a value is wrong.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/communicator.h"

namespace longhaul::dist_test {

/// All of them, collective; the communicator stays usable.
void run_device_cases(dist::Communicator& comm, at::Device device);

}  // namespace longhaul::dist_test
