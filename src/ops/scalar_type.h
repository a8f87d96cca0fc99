// Our element types in libtorch's terms.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/dtype.h"

namespace longhaul::ops {

/// The floating-point types that weights are stored in; Undefined for any other.
inline at::ScalarType torch_type(base::Dtype dtype) {
  switch (dtype) {
    case base::Dtype::kFloat32:
      return at::kFloat;
    case base::Dtype::kFloat16:
      return at::kHalf;
    case base::Dtype::kBFloat16:
      return at::kBFloat16;
    default:
      return at::ScalarType::Undefined;
  }
}

}  // namespace longhaul::ops
