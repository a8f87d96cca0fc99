#include "model/sharded_weight_store.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "ops/backend.h"
#include "ops/step_clock.h"

namespace longhaul::model {

ShardedWeightStore::ShardedWeightStore(const config::ModelConfig& model,
                                       const Parameters& parameters, double lora_scale,
                                       dist::Communicator& world,
                                       std::unique_ptr<ops::SideStream> side)
    : parameters_(&parameters),
      world_(&world),
      comm_(world.split(0)),
      side_(std::move(side)),
      ends_(end_weights(parameters)) {
  if (side_ == nullptr) {
    side_ = ops::backend_of(ends_.embedding).side_stream();
  }
  lowest_trained_ = model.num_layers;
  for (std::int64_t i = 0; i < model.num_layers; ++i) {
    Layer layer;
    layer.weights = layer_weights(
        parameters, i, lora_scale, [&](const Shard& shard, std::span<const LinearMember> members) {
          layer.groups.push_back(make_group(buffer_of(i), layer.groups.size(), shard, members));
          return layer.groups.back().matrix;
        });
    if (layer.weights.trained()) {
      lowest_trained_ = std::min(lowest_trained_, i);
    }
    layers_.push_back(std::move(layer));
  }
  lowest_backward_ = ends_.embedding_param >= 0 ? 0 : lowest_trained_;
}

ShardedWeightStore::~ShardedWeightStore() {
  // A gather that nobody waited for may still write to the buffers that are freed now.
  for (Buffer& buffer : buffers_) {
    try {
      wait_for(buffer);
    } catch (const std::exception&) {
      // The device has failed; whoever noticed it first reports it.
    }
  }
}

ShardedWeightStore::Group ShardedWeightStore::make_group(Buffer& buffer, std::size_t number,
                                                         const Shard& shard,
                                                         std::span<const LinearMember> members) {
  const std::int64_t lora_columns = shard.room > 0 ? members.back().lora_columns.end : 0;
  const auto [entry, is_new] = buffer.matrices.try_emplace(
      Turn{number, shard.outputs, shard.inputs, shard.room, lora_columns}, at::Tensor());
  at::Tensor& matrix = entry->second;
  if (is_new) {
    matrix =
        at::zeros({shard.outputs + shard.room, shard.inputs + shard.room}, shard.rows.options());
  }
  Group group;
  group.shard = &shard;
  group.matrix = matrix;
  const std::int64_t row_bytes =
      matrix.stride(0) * static_cast<std::int64_t>(matrix.element_size());
  for (const config::Range& range : shard.ranges) {
    group.bytes.push_back(range.size() * row_bytes);
  }
  for (const LinearMember& member : members) {
    if (shard.room == 0 || member.lora_columns.size() == 0) {
      continue;
    }
    const auto [first, rank] = std::pair(member.lora_columns.begin, member.lora_columns.size());
    group.copies.push_back(
        matrix.narrow(0, shard.outputs + first, rank).narrow(1, 0, shard.inputs));
    group.originals.push_back(parameters_->compute(member.lora_a_param));
    group.copies.push_back(matrix.narrow(0, member.outputs.begin, member.outputs.size())
                               .narrow(1, shard.inputs + first, rank));
    group.originals.push_back(parameters_->compute(member.lora_b_param));
  }
  return group;
}

void ShardedWeightStore::copy_adapters(const Layer& layer) {
  for (const Group& group : layer.groups) {
    if (!group.copies.empty()) {
      at::_foreach_copy_(group.copies, group.originals);
    }
  }
}

void ShardedWeightStore::gather(std::int64_t layer) {
  Buffer& buffer = buffer_of(layer);
  LONGHAUL_ASSERT(buffer.hold.use_count() == 1, "a layer in use keeps its buffer");
  const Layer& wanted = layers_[static_cast<std::size_t>(layer)];
  comm_->set_step(world_->step());
  comm_->set_deadline(world_->deadline());
  buffer.layer = -1;
  // The buffer was read by compute that has been enqueued by now: the side stream follows it.
  const ops::OpTimer timer(ops::OpKind::kExchange);
  side_->run([&] {
    for (const Group& group : wanted.groups) {
      comm_->all_gather("gather weights", group.shard->rows.data_ptr(),
                        static_cast<std::int64_t>(group.shard->rows.nbytes()),
                        group.matrix.data_ptr(), group.bytes);
    }
    copy_adapters(wanted);
  });
  buffer.ready = side_->mark();
  buffer.is_awaited = true;
  buffer.version = parameters_->version();
  buffer.layer = layer;
  ++num_gathers_;
}

void ShardedWeightStore::wait_for(Buffer& buffer) {
  if (std::exchange(buffer.is_awaited, false)) {
    const ops::OpTimer timer(ops::OpKind::kExchange);
    side_->wait(buffer.ready);
    buffer.ready = nullptr;
  }
}

WeightLease ShardedWeightStore::acquire(std::int64_t layer, Pass pass) {
  LONGHAUL_ASSERT(layer >= 0 && layer < num_layers(), "a layer of the model");
  Buffer& buffer = buffer_of(layer);
  if (buffer.layer != layer) {
    gather(layer);
  }
  wait_for(buffer);
  const Layer& wanted = layers_[static_cast<std::size_t>(layer)];
  if (buffer.version != parameters_->version()) {
    copy_adapters(wanted);  // updated since the gather
    buffer.version = parameters_->version();
  }
  WeightLease lease(wanted.weights, buffer.hold);
  const bool is_forward = pass == Pass::kForward;
  const std::int64_t next = layer + (is_forward ? 1 : -1);
  if (next >= (is_forward ? 0 : lowest_backward_) && next < num_layers()) {
    const Buffer& other = buffer_of(next);
    if (other.layer != next && other.hold.use_count() == 1) {
      gather(next);
    }
  }
  return lease;
}

}  // namespace longhaul::model
