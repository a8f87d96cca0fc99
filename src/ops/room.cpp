#include "ops/room.h"

#include <ATen/ops/empty.h>

namespace longhaul::ops {

at::Tensor empty_with_room(std::int64_t rows, std::int64_t columns, std::int64_t room,
                           const at::TensorOptions& options) {
  return at::empty({rows, columns + room}, options).narrow(1, 0, columns);
}

at::Tensor with_room(const at::Tensor& matrix, std::int64_t room) {
  const std::int64_t rows = matrix.size(0);
  const std::int64_t columns = matrix.size(1);
  if (matrix.stride(1) == 1 && matrix.stride(0) >= columns + room) {
    return matrix.as_strided({rows, columns + room}, {matrix.stride(0), 1},
                             matrix.storage_offset());
  }
  const at::Tensor copy = empty_with_room(rows, columns, room, matrix.options());
  copy.copy_(matrix);
  return with_room(copy, room);
}

}  // namespace longhaul::ops
