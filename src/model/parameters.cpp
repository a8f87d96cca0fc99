#include "model/parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/ceil_div.h"
#include "base/error.h"
#include "config/sharding.h"

namespace longhaul::model {
namespace {

constexpr std::int64_t kAlignElements = 16;  // 64 bytes of fp32

std::int64_t align_up(std::int64_t value) { return base::round_up(value, kAlignElements); }

/// A vector as one row.
at::Tensor as_matrix(const at::Tensor& tensor) {
  return tensor.dim() == 1 ? tensor.unsqueeze(0) : tensor;
}

}  // namespace

Parameters::Parameters(std::vector<config::ParamSpec> registry, at::ScalarType compute,
                       at::Device device, std::optional<double> slab_scale,
                       std::optional<RankShare> share)
    : registry_(std::move(registry)),
      compute_type_(compute),
      device_(device),
      slab_scale_(slab_scale),
      share_(share),
      is_cut_(config::cut_over_ranks(registry_)),
      places_(registry_.size()) {
  std::map<std::string, std::size_t> group_of;
  std::vector<Group> groups;
  for (std::size_t i = 0; i < registry_.size(); ++i) {
    by_name_[registry_[i].name] = static_cast<std::int64_t>(i);
    if (registry_[i].tied_to) {
      continue;
    }
    const auto [entry, is_new] =
        group_of.try_emplace(config::fused_name(registry_[i]), groups.size());
    if (is_new) {
      groups.emplace_back();
    }
    groups[entry->second].push_back(static_cast<std::int64_t>(i));
  }
  plan_segments(groups);
  allocate(groups);
  list_copies();
}

void Parameters::plan_segments(const std::vector<Group>& groups) {
  std::int64_t offset = 0;
  for (const Group& group : groups) {
    offset = align_up(offset);
    for (const std::int64_t param : group) {
      const config::ParamSpec& spec = registry_[static_cast<std::size_t>(param)];
      if (spec.trainable) {
        segments_.push_back({param, offset, spec.num_elements(), spec.decay});
        offset += spec.num_elements();
      }
    }
  }
  flat_master_ = at::zeros({align_up(offset)}, at::TensorOptions(device_).dtype(at::kFloat));
  flat_gradient_ = at::zeros({align_up(offset)}, at::TensorOptions(device_).dtype(at::kFloat));
  for (const FlatSegment& segment : segments_) {
    const config::ParamSpec& spec = registry_[static_cast<std::size_t>(segment.param)];
    Place& place = places_[static_cast<std::size_t>(segment.param)];
    place.master = flat_master_.narrow(0, segment.offset, segment.count).view(spec.shape);
    place.gradient = flat_gradient_.narrow(0, segment.offset, segment.count).view(spec.shape);
  }
}

void Parameters::allocate(const std::vector<Group>& groups) {
  // Weights come before their adapters in the registry: a slab or a shard decides about these first.
  for (const Group& group : groups) {
    if (share_ && is_cut_[static_cast<std::size_t>(group.front())]) {
      allocate_shard(group);
    } else if (wants_slab(group)) {
      allocate_slab(group);
    } else if (!places_[static_cast<std::size_t>(group.front())].compute.defined()) {
      allocate_buffer(group);  // else adapters of a slab
    }
  }
}

void Parameters::allocate_buffer(const Group& group) {
  const bool may_alias = std::all_of(group.begin(), group.end(), [&](std::int64_t param) {
    const auto i = static_cast<std::size_t>(param);
    return registry_[i].trainable && places_[i].scale == 1;
  });
  if (compute_type_ == at::kFloat && may_alias) {
    for (const std::int64_t param : group) {
      Place& place = places_[static_cast<std::size_t>(param)];
      place.compute = place.master;  // fp32 training updates the layers' weights in place
      place.aliases = true;
    }
    return;
  }
  std::int64_t elements = 0;
  for (const std::int64_t param : group) {
    elements += registry_[static_cast<std::size_t>(param)].num_elements();
  }
  const at::Tensor buffer = at::empty({elements}, at::TensorOptions(device_).dtype(compute_type_));
  std::int64_t offset = 0;
  for (const std::int64_t param : group) {
    const config::ParamSpec& spec = registry_[static_cast<std::size_t>(param)];
    places_[static_cast<std::size_t>(param)].compute =
        buffer.narrow(0, offset, spec.num_elements()).view(spec.shape);
    offset += spec.num_elements();
  }
}

void Parameters::allocate_shard(const Group& group) {
  const bool in_slab = wants_slab(group);
  const Slab whole = slab_sizes(group);
  Shard shard{.ranges = config::split_tokens(whole.outputs, share_->ranks),
              .outputs = whole.outputs,
              .inputs = whole.inputs,
              .room = in_slab ? whole.room : 0};
  const std::int64_t mine = shard.ranges[static_cast<std::size_t>(share_->rank)].size();
  shard.rows =
      at::zeros({mine, shard.inputs + shard.room}, at::TensorOptions(device_).dtype(compute_type_));
  std::int64_t row = 0;
  for (const std::int64_t param : group) {
    Place& place = places_[static_cast<std::size_t>(param)];
    place.shard = group.front();
    place.first_row = row;
    row += registry_[static_cast<std::size_t>(param)].shape[0];
    if (const std::int64_t b = sibling(param, "lora_B.weight"); in_slab && b >= 0) {
      places_[static_cast<std::size_t>(b)].scale = *slab_scale_;
    }
  }
  shards_.emplace(group.front(), std::move(shard));
}

std::int64_t Parameters::sibling(std::int64_t weight, const std::string& name) const {
  const std::string& own = registry_[static_cast<std::size_t>(weight)].name;
  return find(own.substr(0, own.rfind('.') + 1) + name);
}

bool Parameters::wants_slab(const Group& group) const {
  const auto has_adapter = [&](std::int64_t param) { return sibling(param, "lora_A.weight") >= 0; };
  return slab_scale_ && is_cut_[static_cast<std::size_t>(group.front())] &&
         std::any_of(group.begin(), group.end(), has_adapter);
}

Slab Parameters::slab_sizes(const Group& group) const {
  Slab slab;
  std::int64_t lora_columns = 0;
  for (const std::int64_t param : group) {
    const config::ParamSpec& spec = registry_[static_cast<std::size_t>(param)];
    slab.outputs += spec.shape[0];
    slab.inputs = spec.shape[1];
    if (const std::int64_t a = sibling(param, "lora_A.weight"); a >= 0) {
      lora_columns += registry_[static_cast<std::size_t>(a)].shape[0];
    }
  }
  slab.room = (lora_columns + 7) / 8 * 8;  // whole 16-byte pieces of 16-bit elements
  return slab;
}

void Parameters::allocate_slab(const Group& group) {
  Slab slab = slab_sizes(group);
  slab.matrix = at::zeros({slab.outputs + slab.room, slab.inputs + slab.room},
                          at::TensorOptions(device_).dtype(compute_type_));
  std::int64_t row = 0;
  std::int64_t column = 0;
  for (const std::int64_t param : group) {
    const std::int64_t rows = registry_[static_cast<std::size_t>(param)].shape[0];
    const at::Tensor band = slab.matrix.narrow(0, row, rows);
    places_[static_cast<std::size_t>(param)].compute = band.narrow(1, 0, slab.inputs);
    row += rows;
    const std::int64_t a = sibling(param, "lora_A.weight");
    if (a < 0) {
      continue;
    }
    const std::int64_t rank = registry_[static_cast<std::size_t>(a)].shape[0];
    places_[static_cast<std::size_t>(a)].compute =
        slab.matrix.narrow(0, slab.outputs + column, rank).narrow(1, 0, slab.inputs);
    Place& b = places_[static_cast<std::size_t>(sibling(param, "lora_B.weight"))];
    b.compute = band.narrow(1, slab.inputs + column, rank);
    b.scale = *slab_scale_;
    column += rank;
  }
  slabs_.emplace(group.front(), std::move(slab));
}

const Slab* Parameters::slab(std::int64_t weight) const {
  const auto entry = slabs_.find(weight);
  return entry == slabs_.end() ? nullptr : &entry->second;
}

const Shard* Parameters::shard(std::int64_t weight) const {
  const auto entry = shards_.find(weight);
  return entry == shards_.end() ? nullptr : &entry->second;
}

std::int64_t Parameters::owner_of(std::int64_t param) const {
  LONGHAUL_ASSERT(param >= 0 && param < static_cast<std::int64_t>(registry_.size()),
                  "a parameter of the registry");
  const auto& tied = registry_[static_cast<std::size_t>(param)].tied_to;
  return tied ? find(*tied) : param;
}

std::int64_t Parameters::find(const std::string& name) const {
  const auto entry = by_name_.find(name);
  return entry == by_name_.end() ? -1 : entry->second;
}

const at::Tensor& Parameters::compute(std::int64_t param) const {
  const Place& place = places_[static_cast<std::size_t>(owner_of(param))];
  LONGHAUL_ASSERT(place.shard < 0,
                  registry_[static_cast<std::size_t>(param)].name + " lies in pieces on all ranks");
  return place.compute;
}

const at::Tensor& Parameters::master(std::int64_t param) const {
  const Place& place = places_[static_cast<std::size_t>(owner_of(param))];
  LONGHAUL_ASSERT(place.master.defined(), "only trained parameters have a master");
  return place.master;
}

const at::Tensor& Parameters::gradient(std::int64_t param) const {
  const Place& place = places_[static_cast<std::size_t>(owner_of(param))];
  LONGHAUL_ASSERT(place.gradient.defined(), "only trained parameters have a gradient");
  return place.gradient;
}

bool Parameters::aliases_master(std::int64_t param) const {
  return places_[static_cast<std::size_t>(owner_of(param))].aliases;
}

at::Tensor Parameters::fused(const std::vector<std::int64_t>& params) const {
  const at::Tensor& first = compute(params.front());
  std::int64_t elements = 0;
  const auto* expected = static_cast<const std::byte*>(first.data_ptr());
  for (const std::int64_t param : params) {
    const at::Tensor& part = compute(param);
    LONGHAUL_ASSERT(static_cast<const std::byte*>(part.data_ptr()) == expected,
                    fmt::format("{} lies behind its group's previous member",
                                registry_[static_cast<std::size_t>(param)].name));
    expected += part.nbytes();
    elements += part.numel();
  }
  std::vector<std::int64_t> shape = first.sizes().vec();
  shape[0] = elements / (first.numel() / std::max<std::int64_t>(first.size(0), 1));
  std::vector<std::int64_t> strides = first.strides().vec();
  return first.as_strided(shape, strides);
}

ops::ScaledCopy Parameters::copy_of(const Place& place) {
  return {as_matrix(place.master), as_matrix(place.compute), place.scale};
}

void Parameters::list_copies() {
  for (const FlatSegment& segment : segments_) {
    const Place& place = places_[static_cast<std::size_t>(segment.param)];
    if (!place.aliases) {
      copies_.push_back(copy_of(place));
    }
  }
}

void Parameters::refresh_compute() {
  ++version_;
  ops::scaled_copies(copies_);
}

void Parameters::assign_rows(const Place& place, const at::Tensor& values) const {
  const Shard& shard = shards_.at(place.shard);
  const config::Range mine = shard.ranges[static_cast<std::size_t>(share_->rank)];
  const std::int64_t begin = std::max(mine.begin, place.first_row);
  const std::int64_t count = std::min(mine.end, place.first_row + values.size(0)) - begin;
  if (count > 0) {
    shard.rows.narrow(0, begin - mine.begin, count)
        .narrow(1, 0, shard.inputs)
        .copy_(values.narrow(0, begin - place.first_row, count));
  }
}

void Parameters::assign(std::int64_t param, const at::Tensor& values) {
  const Place& place = places_[static_cast<std::size_t>(owner_of(param))];
  ++version_;
  if (place.shard >= 0) {
    assign_rows(place, values);
    return;
  }
  if (!place.master.defined()) {
    LONGHAUL_ASSERT(place.scale == 1, "adapters are trained");
    place.compute.copy_(values);
    return;
  }
  place.master.copy_(values);
  if (!place.aliases) {
    const ops::ScaledCopy copy = copy_of(place);
    ops::scaled_copies({&copy, 1});
  }
}

std::int64_t Parameters::total_elements() const {
  std::int64_t total = 0;
  for (const config::ParamSpec& spec : registry_) {
    total += spec.tied_to ? 0 : spec.num_elements();
  }
  return total;
}

std::int64_t Parameters::trainable_elements() const {
  std::int64_t total = 0;
  for (const FlatSegment& segment : segments_) {
    total += segment.count;
  }
  return total;
}

}  // namespace longhaul::model
