#include "ops/rows.h"

#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sin.h>
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "ops/backend.h"
#include "ops/step_clock.h"

namespace longhaul::ops {
namespace {

base::Dtype element_type(const at::Tensor& tensor, std::string_view name) {
  if (tensor.scalar_type() == at::kFloat) {
    return base::Dtype::kFloat32;
  }
  LONGHAUL_ASSERT(tensor.scalar_type() == at::kBFloat16,
                  fmt::format("{} is float32 or bfloat16", name));
  return base::Dtype::kBFloat16;
}

/// A [rows, width] tensor with unit column stride, checked.
struct Rows {
  void* data;
  std::int64_t pitch;
  std::int64_t rows;
  std::int64_t width;
};

Rows layout_of(const at::Tensor& tensor, std::string_view name) {
  LONGHAUL_ASSERT(tensor.defined() && tensor.dim() == 2, fmt::format("{} is a matrix", name));
  LONGHAUL_ASSERT(tensor.size(1) <= 1 || tensor.stride(1) == 1,
                  fmt::format("columns of {} are neighbours in memory", name));
  return {tensor.data_ptr(), tensor.stride(0), tensor.size(0), tensor.size(1)};
}

Rows rows_of(const at::Tensor& tensor, std::string_view name, base::Dtype dtype) {
  const Rows rows = layout_of(tensor, name);
  LONGHAUL_ASSERT(element_type(tensor, name) == dtype,
                  fmt::format("{} has the call's element type", name));
  return rows;
}

void check_shape(const Rows& rows, std::int64_t count, std::int64_t width, std::string_view name) {
  LONGHAUL_ASSERT(
      rows.rows == count && rows.width == width,
      fmt::format("{} is [{}, {}], got [{}, {}]", name, count, width, rows.rows, rows.width));
}

void check_fp32(const at::Tensor& tensor, std::int64_t count, std::string_view name) {
  LONGHAUL_ASSERT(
      tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.numel() == count,
      fmt::format("{} is contiguous float32 with {} elements", name, count));
}

/// Values of the host as the kernels of `device` read them: themselves on the CPU, a copy elsewhere.
template <typename T>
at::Tensor device_copy(std::span<const T> values, at::ScalarType type, at::Device device) {
  const at::Tensor host = at::from_blob(const_cast<T*>(values.data()),
                                        {static_cast<std::int64_t>(values.size())}, type);
  return device.is_cpu() ? host : host.to(device);
}

const std::uint64_t* key_words(const at::Tensor& keys) {
  return static_cast<const std::uint64_t*>(keys.const_data_ptr());
}

/// Elements that are only moved, as words of a type that kernels take.
struct Words {
  base::Dtype dtype;
  std::int64_t per_element;
};

Words words_of(const at::Tensor& like) {
  const auto bytes = static_cast<std::int64_t>(like.element_size());
  LONGHAUL_ASSERT(bytes == 2 || bytes == 4 || bytes == 8, "elements have 2, 4 or 8 bytes");
  return bytes == 2 ? Words{base::Dtype::kBFloat16, 1} : Words{base::Dtype::kFloat32, bytes / 4};
}

kernels::HeadSegment segment_of(const HeadCopy& copy, std::int64_t rows, std::int64_t head_dim,
                                std::int64_t words) {
  const Rows from = layout_of(copy.from, "from");
  const Rows to = layout_of(copy.to, "to");
  check_shape(from, rows, from.width, "from");
  check_shape(to, rows, from.width, "to");
  LONGHAUL_ASSERT(copy.from.scalar_type() == copy.to.scalar_type(), "from and to have one type");
  if (copy.rotated) {
    LONGHAUL_ASSERT(head_dim > 0 && head_dim % 2 == 0 && from.width % head_dim == 0,
                    "rotated columns are whole heads");
    element_type(copy.from, "from");
  }
  return {.from = from.data,
          .from_pitch = from.pitch * words,
          .to = to.data,
          .to_pitch = to.pitch * words,
          .columns = from.width * words,
          .rotated = copy.rotated};
}

/// The kernels of a tensor's device and the stream to run them on.
struct Launcher {
  explicit Launcher(const at::Tensor& tensor)
      : kernels(*backend_of(tensor).kernels), stream(backend_of(tensor).stream()) {}
  const kernels::KernelTable& kernels;
  kernels::Stream stream;
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x_SW, const at::Tensor& weight_W, double eps,
                    const at::Tensor& y_SW) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(x_SW, "x");
  const Rows x = rows_of(x_SW, "x", dtype);
  LONGHAUL_ASSERT(weight_W.is_contiguous() && element_type(weight_W, "weight") == dtype,
                  "the norm weight is contiguous and has x's type");
  const std::int64_t width = weight_W.numel();
  LONGHAUL_ASSERT(width > 0 && x.width % width == 0, "columns are whole groups of the norm");
  const std::int64_t groups = x.width / width;
  at::Tensor rstd = at::empty({x.rows, groups}, x_SW.options().dtype(at::kFloat));
  kernels::RmsNormForward args{.dtype = dtype,
                               .x = x.data,
                               .x_pitch = x.pitch,
                               .weight = weight_W.data_ptr(),
                               .rstd = rstd.data_ptr<float>(),
                               .rows = x.rows,
                               .groups = groups,
                               .width = width,
                               .eps = static_cast<float>(eps)};
  if (y_SW.defined()) {
    const Rows y = rows_of(y_SW, "y", dtype);
    check_shape(y, x.rows, x.width, "y");
    args.y = y.data;
    args.y_pitch = y.pitch;
  }
  const Launcher device(x_SW);
  device.kernels.rms_norm_forward(args, device.stream);
  return rstd;
}

void rms_norm_backward(const at::Tensor& dy_SW, const at::Tensor& x_SW, const at::Tensor& weight_W,
                       const at::Tensor& rstd_SG, const at::Tensor& add_SW, const at::Tensor& dx_SW,
                       const at::Tensor& dweight_W) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(x_SW, "x");
  const Rows x = rows_of(x_SW, "x", dtype);
  const Rows dy = rows_of(dy_SW, "dy", dtype);
  const Rows dx = rows_of(dx_SW, "dx", dtype);
  check_shape(dy, x.rows, x.width, "dy");
  check_shape(dx, x.rows, x.width, "dx");
  const std::int64_t width = weight_W.numel();
  const std::int64_t groups = x.width / width;
  check_fp32(rstd_SG, x.rows * groups, "rstd");
  kernels::RmsNormBackward args{.dtype = dtype,
                                .x = x.data,
                                .x_pitch = x.pitch,
                                .weight = weight_W.data_ptr(),
                                .rstd = rstd_SG.data_ptr<float>(),
                                .dy = dy.data,
                                .dy_pitch = dy.pitch,
                                .dx = dx.data,
                                .dx_pitch = dx.pitch,
                                .rows = x.rows,
                                .groups = groups,
                                .width = width};
  if (add_SW.defined()) {
    const Rows add = rows_of(add_SW, "add", dtype);
    check_shape(add, x.rows, x.width, "add");
    args.add = add.data;
    args.add_pitch = add.pitch;
  }
  if (dweight_W.defined()) {
    check_fp32(dweight_W, width, "dweight");
    args.dweight = dweight_W.data_ptr<float>();
  }
  const Launcher device(x_SW);
  device.kernels.rms_norm_backward(args, device.stream);
}

RopeTable make_rope_table(std::span<const std::int32_t> positions,
                          std::span<const float> inverse_frequencies, at::Device device) {
  const auto rows = static_cast<std::int64_t>(positions.size());
  const auto half = static_cast<std::int64_t>(inverse_frequencies.size());
  if (!device.is_cpu()) {
    const at::Tensor position = device_copy(positions, at::kInt, device).to(at::kFloat);
    const at::Tensor angle = at::mul(
        position.unsqueeze(1), device_copy(inverse_frequencies, at::kFloat, device).unsqueeze(0));
    return {at::cos(angle), at::sin(angle)};
  }
  RopeTable table{at::empty({rows, half}, at::kFloat), at::empty({rows, half}, at::kFloat)};
  auto* cosine = table.cosine.data_ptr<float>();
  auto* sine = table.sine.data_ptr<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < half; ++i) {
      // The angle is a float32 product as in the models' own code; its cosine is taken in fp32.
      const float angle = static_cast<float>(positions[static_cast<std::size_t>(row)]) *
                          inverse_frequencies[static_cast<std::size_t>(i)];
      cosine[row * half + i] = std::cos(angle);
      sine[row * half + i] = std::sin(angle);
    }
  }
  return table;
}

void rope(const at::Tensor& x_SW, const RopeTable& table, std::int64_t head_dim,
          RopeDirection direction) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(x_SW, "x");
  const Rows x = rows_of(x_SW, "x", dtype);
  LONGHAUL_ASSERT(head_dim % 2 == 0 && x.width % head_dim == 0, "x holds whole heads");
  check_fp32(table.cosine, x.rows * head_dim / 2, "cosine");
  check_fp32(table.sine, x.rows * head_dim / 2, "sine");
  const Launcher device(x_SW);
  device.kernels.rope({.dtype = dtype,
                       .x = x.data,
                       .pitch = x.pitch,
                       .cosine = table.cosine.data_ptr<float>(),
                       .sine = table.sine.data_ptr<float>(),
                       .rows = x.rows,
                       .heads = x.width / head_dim,
                       .head_dim = head_dim,
                       .inverse = direction == RopeDirection::kInverse},
                      device.stream);
}

void copy_heads(std::span<const HeadCopy> copies, std::int64_t head_dim, const RopeTable& table,
                RopeDirection direction) {
  const OpTimer timer(OpKind::kElementwise);
  if (copies.empty()) {
    return;
  }
  const at::Tensor& first = copies.front().from;
  const std::int64_t rows = layout_of(first, "from").rows;
  const Words words = words_of(first);
  kernels::CopyHeads args{.dtype = words.dtype,
                          .rows = rows,
                          .head_dim = head_dim,
                          .inverse = direction == RopeDirection::kInverse};
  std::vector<kernels::HeadSegment> segments;
  bool any_rotated = false;
  for (const HeadCopy& copy : copies) {
    LONGHAUL_ASSERT(copy.from.scalar_type() == first.scalar_type(), "copies have one type");
    segments.push_back(segment_of(copy, rows, head_dim, words.per_element));
    any_rotated = any_rotated || copy.rotated;
  }
  if (any_rotated) {
    check_fp32(table.cosine, rows * head_dim / 2, "cosine");
    check_fp32(table.sine, rows * head_dim / 2, "sine");
    args.cosine = table.cosine.data_ptr<float>();
    args.sine = table.sine.data_ptr<float>();
  }
  args.segments = segments.data();
  args.num_segments = static_cast<std::int64_t>(segments.size());
  const Launcher device(first);
  device.kernels.copy_heads(args, device.stream);
}

void scaled_copies(std::span<const ScaledCopy> copies) {
  const OpTimer timer(OpKind::kElementwise);
  if (copies.empty()) {
    return;
  }
  const at::Tensor& first = copies.front().to;
  const base::Dtype dtype = element_type(first, "to");
  std::vector<kernels::ScaledSegment> segments;
  segments.reserve(copies.size());
  for (const ScaledCopy& copy : copies) {
    const Rows from = layout_of(copy.from, "from");
    const Rows to = rows_of(copy.to, "to", dtype);
    LONGHAUL_ASSERT(copy.from.scalar_type() == at::kFloat, "from is float32");
    check_shape(to, from.rows, from.width, "to");
    segments.push_back({.from = static_cast<const float*>(from.data),
                        .from_pitch = from.pitch,
                        .to = to.data,
                        .to_pitch = to.pitch,
                        .rows = from.rows,
                        .columns = from.width,
                        .scale = static_cast<float>(copy.scale)});
  }
  const Launcher device(first);
  device.kernels.scaled_copies({.dtype = dtype,
                                .segments = segments.data(),
                                .num_segments = static_cast<std::int64_t>(segments.size())},
                               device.stream);
}

void swiglu(const at::Tensor& gate_up, const at::Tensor& out) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(gate_up, "gate_up");
  const Rows in = rows_of(gate_up, "gate_up", dtype);
  const Rows result = rows_of(out, "out", dtype);
  check_shape(result, in.rows, in.width / 2, "out");
  const Launcher device(gate_up);
  device.kernels.swiglu_forward({.dtype = dtype,
                                 .gate_up = in.data,
                                 .gate_up_pitch = in.pitch,
                                 .out = result.data,
                                 .out_pitch = result.pitch,
                                 .rows = in.rows,
                                 .width = in.width / 2},
                                device.stream);
}

void swiglu_backward(const at::Tensor& dout, const at::Tensor& gate_up, const at::Tensor& dgate_up,
                     const at::Tensor& out) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(gate_up, "gate_up");
  const Rows in = rows_of(gate_up, "gate_up", dtype);
  const Rows gradient = rows_of(dout, "dout", dtype);
  const Rows result = rows_of(dgate_up, "dgate_up", dtype);
  check_shape(gradient, in.rows, in.width / 2, "dout");
  check_shape(result, in.rows, in.width, "dgate_up");
  Rows again{};
  if (out.defined()) {
    again = rows_of(out, "out", dtype);
    check_shape(again, in.rows, in.width / 2, "out");
  }
  const Launcher device(gate_up);
  device.kernels.swiglu_backward({.dtype = dtype,
                                  .gate_up = in.data,
                                  .gate_up_pitch = in.pitch,
                                  .dout = gradient.data,
                                  .dout_pitch = gradient.pitch,
                                  .dgate_up = result.data,
                                  .dgate_up_pitch = result.pitch,
                                  .rows = in.rows,
                                  .width = in.width / 2,
                                  .out = again.data,
                                  .out_pitch = again.pitch},
                                 device.stream);
}

TileLoss cross_entropy(const at::Tensor& logits_SV, std::span<const std::int32_t> labels,
                       double gradient_scale) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(logits_SV, "logits");
  const Rows logits = rows_of(logits_SV, "logits", dtype);
  LONGHAUL_ASSERT(logits.rows == static_cast<std::int64_t>(labels.size()), "one label per row");
  const auto options = logits_SV.options();
  const at::Tensor labels_on_device = device_copy(labels, at::kInt, logits_SV.device());
  const at::Tensor row_loss = at::empty({logits.rows}, options.dtype(at::kDouble));
  const at::Tensor correct = at::empty({logits.rows}, options.dtype(at::kByte));
  const Launcher device(logits_SV);
  device.kernels.cross_entropy({.dtype = dtype,
                                .logits = logits.data,
                                .pitch = logits.pitch,
                                .labels = labels_on_device.data_ptr<std::int32_t>(),
                                .row_loss = row_loss.data_ptr<double>(),
                                .correct = correct.data_ptr<std::uint8_t>(),
                                .rows = logits.rows,
                                .vocab = logits.width,
                                .gradient_scale = static_cast<float>(gradient_scale)},
                               device.stream);
  const at::Tensor losses = row_loss.cpu();
  const at::Tensor hits = correct.cpu();
  TileLoss tile;
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    tile.loss_sum += losses.const_data_ptr<double>()[row];
    tile.correct += hits.const_data_ptr<std::uint8_t>()[row];
  }
  return tile;
}

void embedding_gather(const at::Tensor& table_VW, std::span<const std::int32_t> ids,
                      const at::Tensor& out_SW) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(table_VW, "table");
  const Rows out = rows_of(out_SW, "out", dtype);
  check_shape(out, static_cast<std::int64_t>(ids.size()), table_VW.size(1), "out");
  LONGHAUL_ASSERT(table_VW.is_contiguous(), "the embedding table is contiguous");
  const at::Tensor ids_on_device = device_copy(ids, at::kInt, table_VW.device());
  const Launcher device(table_VW);
  device.kernels.embedding_gather({.dtype = dtype,
                                   .table = table_VW.data_ptr(),
                                   .ids = ids_on_device.data_ptr<std::int32_t>(),
                                   .out = out.data,
                                   .out_pitch = out.pitch,
                                   .rows = out.rows,
                                   .width = out.width},
                                  device.stream);
}

void embedding_scatter(const at::Tensor& dout_SW, std::span<const std::int32_t> ids,
                       const at::Tensor& dtable_VW) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(dout_SW, "dout");
  const Rows dout = rows_of(dout_SW, "dout", dtype);
  check_shape(dout, static_cast<std::int64_t>(ids.size()), dtable_VW.size(1), "dout");
  check_fp32(dtable_VW, dtable_VW.numel(), "dtable");
  const at::Tensor ids_on_device = device_copy(ids, at::kInt, dout_SW.device());
  const Launcher device(dout_SW);
  device.kernels.embedding_scatter({.dtype = dtype,
                                    .dout = dout.data,
                                    .dout_pitch = dout.pitch,
                                    .ids = ids_on_device.data_ptr<std::int32_t>(),
                                    .dtable = dtable_VW.data_ptr<float>(),
                                    .rows = dout.rows,
                                    .width = dout.width},
                                   device.stream);
}

at::Tensor keys_on_device(std::span<const std::uint64_t> row_keys, at::Device device) {
  return device_copy(row_keys, at::kLong, device);
}

at::Tensor keys_on_device(const DropoutKeys& keys, at::Device device) {
  return keys.on_device.defined() ? keys.on_device : keys_on_device(keys.row_keys, device);
}

void dropout(const at::Tensor& x_SW, const at::Tensor& y_SW, const DropoutKeys& keys,
             std::int64_t first_column, DropoutOutput output) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(x_SW, "x");
  const Rows x = rows_of(x_SW, "x", dtype);
  const Rows y = rows_of(y_SW, "y", dtype);
  check_shape(y, x.rows, x.width, "y");
  LONGHAUL_ASSERT(static_cast<std::int64_t>(keys.row_keys.size()) == x.rows, "one key per row");
  const at::Tensor row_keys = keys_on_device(keys, x_SW.device());
  const Launcher device(x_SW);
  device.kernels.dropout({.dtype = dtype,
                          .x = x.data,
                          .x_pitch = x.pitch,
                          .y = y.data,
                          .y_pitch = y.pitch,
                          .row_keys = key_words(row_keys),
                          .seed_key = keys.seed_key,
                          .first_column = first_column,
                          .rows = x.rows,
                          .width = x.width,
                          .probability = keys.probability,
                          .add = output == DropoutOutput::kAccumulate},
                         device.stream);
}

void add_uniform_noise(const at::Tensor& x_SW, std::span<const std::uint64_t> row_keys,
                       std::span<const float> magnitude, std::uint64_t seed_key) {
  const OpTimer timer(OpKind::kElementwise);
  const base::Dtype dtype = element_type(x_SW, "x");
  const Rows x = rows_of(x_SW, "x", dtype);
  LONGHAUL_ASSERT(static_cast<std::int64_t>(row_keys.size()) == x.rows &&
                      static_cast<std::int64_t>(magnitude.size()) == x.rows,
                  "one key and one magnitude per row");
  const at::Tensor keys = device_copy(row_keys, at::kLong, x_SW.device());
  const at::Tensor magnitudes = device_copy(magnitude, at::kFloat, x_SW.device());
  const Launcher device(x_SW);
  device.kernels.uniform_noise({.dtype = dtype,
                                .x = x.data,
                                .pitch = x.pitch,
                                .row_keys = key_words(keys),
                                .magnitude = magnitudes.data_ptr<float>(),
                                .seed_key = seed_key,
                                .rows = x.rows,
                                .width = x.width},
                               device.stream);
}

}  // namespace longhaul::ops
