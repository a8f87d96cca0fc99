// Matrices with spare columns behind every row, where a product finds the columns that belong to
// its neighbour without another buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace longhaul::ops {

/// An uninitialised [rows, columns] matrix whose rows are `room` elements further apart than needed.
at::Tensor empty_with_room(std::int64_t rows, std::int64_t columns, std::int64_t room,
                           const at::TensorOptions& options);

/// `matrix` [rows, columns] and the room behind its rows as [rows, columns + room]: a view when its
/// rows are far enough apart, else a copy with undefined room. Never pass a view of a wider matrix
/// whose further columns hold something.
at::Tensor with_room(const at::Tensor& matrix, std::int64_t room);

}  // namespace longhaul::ops
