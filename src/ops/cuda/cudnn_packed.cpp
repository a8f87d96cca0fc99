#include "ops/cuda/cudnn_packed.h"

#include <ATen/cudnn/Handle.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace longhaul::ops {
namespace {

namespace fe = cudnn_frontend;
using Attributes = fe::graph::Tensor_attributes;
using GraphTensor = std::shared_ptr<Attributes>;

enum Id : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kStats,
  kDout,
  kDq,
  kDk,
  kDv,
  kLengths,
  kOffsets,  // and one more for every row stride
};

/// What a graph is built for.
struct GraphShape {
  bool is_backward = false;
  std::int64_t capacity = 0;  // documents
  std::int64_t longest = 0;   // rows of each
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t in_stride = 0;    // elements from one row of q, k, v to the next
  std::int64_t out_stride = 0;   // of out
  std::int64_t dout_stride = 0;  // of d(out)
  double scale = 0;
  bool is_half = false;
  auto operator<=>(const GraphShape&) const = default;
};

void check(fe::error_t status, const char* step) {
  if (status.is_bad()) {
    throw base::SystemError({.where = "attention of packed documents",
                             .what = fmt::format("cuDNN, {}: {}", step, status.get_message())});
  }
}

/// A built graph, and the places of the documents that it last worked on.
class PackedGraph {
 public:
  explicit PackedGraph(const GraphShape& shape);

  void run(const AttentionCall& call, std::unordered_map<std::int64_t, void*> places,
           const at::Tensor& like);

 private:
  GraphTensor rows(const char* name, Id id, std::int64_t heads, std::int64_t head_stride,
                   std::int64_t columns, std::int64_t row_stride);
  void describe(const GraphTensor& tensor, std::int64_t heads, std::int64_t head_stride,
                std::int64_t columns, std::int64_t row_stride);
  GraphTensor offsets_of(std::int64_t row_stride);
  /// `count` whole numbers of the device.
  GraphTensor numbers(const std::string& name, std::int64_t id, std::int64_t count,
                      fe::DataType_t type);
  /// What both passes ask for.
  template <typename Options>
  Options options(const char* name);
  void add_forward();
  void add_backward();
  /// Where documents lie, on the device.
  struct Places {
    std::vector<config::Range> documents;
    at::Tensor offsets;  // [row strides, capacity + 1]
    at::Tensor lengths;  // [capacity]
  };
  const Places& places_of(const AttentionCall& call, const at::Tensor& like);

  GraphShape shape_;
  fe::graph::Graph graph_;
  std::vector<std::int64_t> row_strides_;  // in the order of their offsets
  std::vector<GraphTensor> offsets_;
  std::int64_t workspace_bytes_ = 0;
  std::deque<Places> uploaded_;  // of the latest calls: all layers of a row ask for the same ones
};

PackedGraph::PackedGraph(const GraphShape& shape) : shape_(shape) {
  graph_.set_io_data_type(shape.is_half ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (shape.is_backward) {
    add_backward();
  } else {
    add_forward();
  }
  const cudnnHandle_t handle = at::native::getCudnnHandle();
  check(graph_.build(handle, {fe::HeurMode_t::A}), "building a graph");
  check(graph_.get_workspace_size(workspace_bytes_), "size of the workspace");
}

GraphTensor PackedGraph::offsets_of(std::int64_t row_stride) {
  const auto found = std::find(row_strides_.begin(), row_strides_.end(), row_stride);
  if (found != row_strides_.end()) {
    return offsets_[static_cast<std::size_t>(found - row_strides_.begin())];
  }
  const auto id = static_cast<std::int64_t>(kOffsets) + static_cast<std::int64_t>(offsets_.size());
  row_strides_.push_back(row_stride);
  offsets_.push_back(
      numbers(fmt::format("offsets{}", id), id, shape_.capacity + 1, fe::DataType_t::INT64));
  return offsets_.back();
}

void PackedGraph::describe(const GraphTensor& tensor, std::int64_t heads, std::int64_t head_stride,
                           std::int64_t columns, std::int64_t row_stride) {
  tensor->set_dim({shape_.capacity, heads, shape_.longest, columns})
      .set_stride({shape_.longest * row_stride, head_stride, row_stride, 1})
      .set_ragged_offset(offsets_of(row_stride));
}

GraphTensor PackedGraph::rows(const char* name, Id id, std::int64_t heads, std::int64_t head_stride,
                              std::int64_t columns, std::int64_t row_stride) {
  const GraphTensor tensor = graph_.tensor(Attributes().set_name(name).set_uid(id));
  describe(tensor, heads, head_stride, columns, row_stride);
  return tensor;
}

GraphTensor PackedGraph::numbers(const std::string& name, std::int64_t id, std::int64_t count,
                                 fe::DataType_t type) {
  return graph_.tensor(Attributes()
                           .set_name(name)
                           .set_uid(id)
                           .set_dim({count, 1, 1, 1})
                           .set_stride({1, 1, 1, 1})
                           .set_data_type(type));
}

template <typename Options>
Options PackedGraph::options(const char* name) {
  const GraphTensor lengths = numbers("lengths", kLengths, shape_.capacity, fe::DataType_t::INT32);
  Options result;
  result.set_name(name)
      .set_attn_scale(static_cast<float>(shape_.scale))
      .set_causal_mask(true)
      .set_padding_mask(true)
      .set_seq_len_q(lengths)
      .set_seq_len_kv(lengths);
  return result;
}

void PackedGraph::add_forward() {
  const std::int64_t d = shape_.head_dim;
  auto sdpa = options<fe::graph::SDPA_attributes>("attention");
  sdpa.set_generate_stats(true);
  auto [out, stats] = graph_.sdpa(rows("q", kQ, shape_.query_heads, d, d, shape_.in_stride),
                                  rows("k", kK, shape_.kv_heads, d, d, shape_.in_stride),
                                  rows("v", kV, shape_.kv_heads, d, d, shape_.in_stride), sdpa);
  out->set_output(true).set_uid(kOut);
  describe(out, shape_.query_heads, d, d, shape_.out_stride);
  stats->set_output(true).set_uid(kStats).set_data_type(fe::DataType_t::FLOAT);
  describe(stats, shape_.query_heads, 1, 1, shape_.query_heads);
}

void PackedGraph::add_backward() {
  const std::int64_t d = shape_.head_dim;
  const GraphTensor stats = rows("stats", kStats, shape_.query_heads, 1, 1, shape_.query_heads);
  stats->set_data_type(fe::DataType_t::FLOAT);
  // No set_max_total_seq_len_q: cuDNN 9.19 then leaves d(q) of all documents but the first at zero.
  const auto sdpa = options<fe::graph::SDPA_backward_attributes>("attention backward");
  auto [dq, dk, dv] = graph_.sdpa_backward(
      rows("q", kQ, shape_.query_heads, d, d, shape_.in_stride),
      rows("k", kK, shape_.kv_heads, d, d, shape_.in_stride),
      rows("v", kV, shape_.kv_heads, d, d, shape_.in_stride),
      rows("out", kOut, shape_.query_heads, d, d, shape_.out_stride),
      rows("dout", kDout, shape_.query_heads, d, d, shape_.dout_stride), stats, sdpa);
  dq->set_output(true).set_uid(kDq);
  describe(dq, shape_.query_heads, d, d, shape_.query_heads * d);
  dk->set_output(true).set_uid(kDk);
  describe(dk, shape_.kv_heads, d, d, shape_.kv_heads * d);
  dv->set_output(true).set_uid(kDv);
  describe(dv, shape_.kv_heads, d, d, shape_.kv_heads * d);
}

const PackedGraph::Places& PackedGraph::places_of(const AttentionCall& call,
                                                  const at::Tensor& like) {
  for (const Places& places : uploaded_) {
    if (places.documents == call.documents) {
      return places;
    }
  }
  std::vector<std::int64_t> offsets;
  std::vector<std::int32_t> lengths;
  const auto spare = static_cast<std::size_t>(shape_.capacity) - call.documents.size();
  for (const std::int64_t row_stride : row_strides_) {
    for (const config::Range& document : call.documents) {
      offsets.push_back(row_stride * document.begin);
    }
    // Documents of no rows.
    offsets.resize(offsets.size() + spare + 1, row_stride * call.documents.back().end);
  }
  for (const config::Range& document : call.documents) {
    lengths.push_back(static_cast<std::int32_t>(document.size()));
  }
  lengths.resize(lengths.size() + spare, 0);
  const auto to_device = [&](const at::Tensor& values) {
    return values.to(like.device(), /*non_blocking=*/true);
  };
  constexpr std::size_t kCallsOfARow = 8;
  if (uploaded_.size() == kCallsOfARow) {
    uploaded_.pop_front();
  }
  uploaded_.push_back(
      {.documents = call.documents,
       .offsets = to_device(at::tensor(at::ArrayRef<std::int64_t>(offsets), at::kLong)),
       .lengths = to_device(at::tensor(at::ArrayRef<std::int32_t>(lengths), at::kInt))});
  return uploaded_.back();
}

void PackedGraph::run(const AttentionCall& call, std::unordered_map<std::int64_t, void*> places,
                      const at::Tensor& like) {
  const Places& documents = places_of(call, like);
  places[kLengths] = documents.lengths.data_ptr();
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    places[static_cast<std::int64_t>(kOffsets) + static_cast<std::int64_t>(i)] =
        documents.offsets.data_ptr<std::int64_t>() +
        static_cast<std::int64_t>(i) * (shape_.capacity + 1);
  }
  const at::Tensor workspace = at::empty({workspace_bytes_}, like.options().dtype(at::kByte));
  check(graph_.execute(at::native::getCudnnHandle(), places, workspace.data_ptr()), "attention");
}

GraphShape shape_of(const AttentionOperands& in, const AttentionCall& call, double scale,
                    const at::Tensor& out) {
  // With one row libtorch names any stride.
  LONGHAUL_ASSERT(
      in.q.size(2) == 1 || (in.q.stride(2) == in.k.stride(2) && in.q.stride(2) == in.v.stride(2)),
      "q, k, v are columns of one matrix");
  LONGHAUL_ASSERT(in.q.stride(1) == in.q.size(3) && out.stride(1) == in.q.size(3),
                  "heads lie side by side");
  return {.capacity = call.capacity,
          .longest = call.longest,
          .query_heads = in.q.size(1),
          .kv_heads = in.k.size(1),
          .head_dim = in.q.size(3),
          .in_stride = in.q.stride(2),
          .out_stride = out.stride(0),
          .scale = scale,
          .is_half = in.q.scalar_type() == at::kHalf};
}

/// Graphs of this process's device, kept because building one takes tens of milliseconds.
PackedGraph& graph_of(const GraphShape& shape) {
  // Never destroyed: when a process ends, CUDA may be gone before them.
  static auto& graphs = *new std::map<GraphShape, std::unique_ptr<PackedGraph>>;
  std::unique_ptr<PackedGraph>& graph = graphs[shape];
  if (!graph) {
    graph = std::make_unique<PackedGraph>(shape);
  }
  return *graph;
}

}  // namespace

at::Tensor cudnn_packed_forward(const AttentionOperands& in, std::span<const AttentionCall> calls,
                                double scale, const at::Tensor& out) {
  at::Tensor lse = at::empty({in.q.size(2), in.q.size(1)}, in.q.options().dtype(at::kFloat));
  const std::unordered_map<std::int64_t, void*> places = {{kQ, in.q.data_ptr()},
                                                          {kK, in.k.data_ptr()},
                                                          {kV, in.v.data_ptr()},
                                                          {kOut, out.data_ptr()},
                                                          {kStats, lse.data_ptr()}};
  for (const AttentionCall& call : calls) {
    graph_of(shape_of(in, call, scale, out)).run(call, places, in.q);
  }
  return lse;
}

PackedGradients cudnn_packed_backward(const AttentionOperands& in,
                                      std::span<const AttentionCall> calls, double scale,
                                      const at::Tensor& dout, const at::Tensor& out,
                                      const at::Tensor& lse) {
  const auto empty_like = [](const at::Tensor& heads) {
    return at::empty({heads.size(2), heads.size(1), heads.size(3)}, heads.options());
  };
  PackedGradients made{.dq = empty_like(in.q), .dk = empty_like(in.k), .dv = empty_like(in.v)};
  const std::unordered_map<std::int64_t, void*> places = {
      {kQ, in.q.data_ptr()},     {kK, in.k.data_ptr()},     {kV, in.v.data_ptr()},
      {kOut, out.data_ptr()},    {kDout, dout.data_ptr()},  {kStats, lse.data_ptr()},
      {kDq, made.dq.data_ptr()}, {kDk, made.dk.data_ptr()}, {kDv, made.dv.data_ptr()}};
  for (const AttentionCall& call : calls) {
    GraphShape shape = shape_of(in, call, scale, out);
    shape.is_backward = true;
    shape.dout_stride = dout.stride(0);
    graph_of(shape).run(call, places, in.q);
  }
  return made;
}

}  // namespace longhaul::ops
