#include "train/weight_files.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/path_state.h"
#include "base/safetensors.h"
#include "model/loader.h"
#include "ops/scalar_type.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr std::string_view kMoments = "exp_avg";  // and exp_avg_sq

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  LONGHAUL_ASSERT(tensor.is_contiguous(), "tensors are written as they lie in memory");
  return {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// A tensor to write that keeps its (possibly converted) values alive.
struct Entry {
  std::string name;
  base::Dtype dtype;
  std::vector<std::int64_t> shape;
  at::Tensor values;
};

void write_entries(const fs::path& path, const std::vector<Entry>& entries,
                   const std::map<std::string, std::string>& metadata) {
  std::vector<base::TensorToWrite> tensors;
  tensors.reserve(entries.size());
  std::vector<at::Tensor> on_host;  // alive until the file is written
  for (const Entry& entry : entries) {
    on_host.push_back(entry.values.cpu());
    tensors.push_back({.name = entry.name,
                       .dtype = entry.dtype,
                       .shape = entry.shape,
                       .bytes = bytes_of(on_host.back())});
  }
  base::write_safetensors(path, tensors, metadata);
}

/// The most exact value there is of a parameter.
const at::Tensor& exact_value(const model::Parameters& parameters, std::int64_t param) {
  return parameters.registry()[static_cast<std::size_t>(param)].trainable
             ? parameters.master(param)
             : parameters.compute(param);
}

struct StateTensor {
  std::string name;
  at::Tensor values;
  base::Dtype dtype;
};

std::vector<StateTensor> state_tensors(const model::Parameters& parameters,
                                       const AdamW& optimizer) {
  std::vector<StateTensor> state;
  for (const model::FlatSegment& segment : parameters.segments()) {
    const std::string& name = parameters.registry()[static_cast<std::size_t>(segment.param)].name;
    state.push_back({"exp_avg/" + name, optimizer.exp_avg(segment), optimizer.state_dtype()});
    state.push_back({"exp_avg_sq/" + name, optimizer.exp_avg_sq(segment), optimizer.state_dtype()});
    state.push_back({"master/" + name, parameters.master(segment.param), base::Dtype::kFloat32});
  }
  return state;
}

/// Element type of the moments in a file of ours, float32 or bfloat16; all have the same.
base::Dtype stored_moment_dtype(const base::SafetensorsReader& reader) {
  const auto first = reader.tensors().lower_bound(std::string(kMoments));
  const bool rounded = first != reader.tensors().end() && first->first.starts_with(kMoments) &&
                       first->second.dtype == base::Dtype::kBFloat16;
  return rounded ? base::Dtype::kBFloat16 : base::Dtype::kFloat32;
}

}  // namespace

void write_adapter_weights(const fs::path& folder, const model::Parameters& parameters) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    if (spec.in_adapter && !spec.tied_to) {
      entries.push_back({model::adapter_tensor_name(spec), base::Dtype::kFloat32, spec.shape,
                         parameters.master(static_cast<std::int64_t>(i))});
    }
  }
  write_entries(folder / "adapter_model.safetensors", entries, {{"format", "pt"}});
}

void write_full_weights(const fs::path& folder, const model::Parameters& parameters,
                        base::Dtype dtype, std::int64_t shard_bytes) {
  std::vector<std::vector<std::int64_t>> shards(1);
  std::int64_t shard_size = 0;
  std::int64_t total = 0;
  const auto element_bytes = static_cast<std::int64_t>(base::dtype_bytes(dtype));
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    if (spec.tied_to) {
      continue;
    }
    const std::int64_t bytes = spec.num_elements() * element_bytes;
    if (shard_size > 0 && shard_size + bytes > shard_bytes) {
      shards.emplace_back();
      shard_size = 0;
    }
    shards.back().push_back(static_cast<std::int64_t>(i));
    shard_size += bytes;
    total += bytes;
  }
  base::OrderedJson weight_map = base::OrderedJson::object();
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string file = shards.size() == 1 ? "model.safetensors"
                                                : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                              shard + 1, shards.size());
    std::vector<Entry> entries;
    for (const std::int64_t param : shards[shard]) {
      const config::ParamSpec& spec = parameters.registry()[static_cast<std::size_t>(param)];
      entries.push_back({spec.name, dtype, spec.shape,
                         exact_value(parameters, param).to(ops::torch_type(dtype)).contiguous()});
      weight_map[spec.name] = file;
    }
    write_entries(folder / file, entries, {{"format", "pt"}});
  }
  if (shards.size() > 1) {
    const base::OrderedJson index = {{"metadata", {{"total_size", total}}},
                                     {"weight_map", weight_map}};
    base::write_file_atomically(folder / "model.safetensors.index.json", index.dump(2) + "\n");
  }
}

void write_optimizer(const fs::path& folder, const model::Parameters& parameters,
                     const AdamW& optimizer) {
  std::vector<Entry> entries;
  for (StateTensor& state : state_tensors(parameters, optimizer)) {
    std::vector<std::int64_t> shape = state.values.sizes().vec();
    entries.push_back(
        {std::move(state.name), state.dtype, std::move(shape), std::move(state.values)});
  }
  write_entries(folder / kOptimizerFile, entries,
                {{"format", "pt"}, {"step", std::to_string(optimizer.steps_done())}});
}

void read_optimizer(const fs::path& folder, model::Parameters& parameters, AdamW& optimizer) {
  const fs::path path = folder / kOptimizerFile;
  if (!base::path_exists(path, "--resume_from_checkpoint")) {
    throw base::UserError(base::Problem{
        .where = folder.string(),
        .what = "the checkpoint has no optimizer state",
        .hint = "It was written with --save_only_model; start from it with --adapters or --model"});
  }
  const base::SafetensorsReader reader(path);
  const base::Dtype moments = stored_moment_dtype(reader);
  if (moments != optimizer.state_dtype()) {
    throw base::UserError(
        base::Problem{.where = "--optimizer_state_dtype",
                      .what = "differs from the checkpoint's",
                      .got = std::string(base::dtype_name(optimizer.state_dtype())),
                      .expected = std::string(base::dtype_name(moments)),
                      .hint = "Resume with the options of the run that wrote the checkpoint"});
  }
  for (const StateTensor& state : state_tensors(parameters, optimizer)) {
    const base::TensorView& file = reader.at(state.name);
    const bool is_moment = state.name.starts_with(kMoments);
    const base::Dtype dtype = is_moment ? moments : base::Dtype::kFloat32;
    if (file.shape != state.values.sizes().vec() || file.dtype != dtype) {
      throw base::UserError(
          base::Problem{.where = path.string(),
                        .what = "state " + state.name + " does not fit this run's parameters",
                        .hint = "Resume with the options of the run that wrote the checkpoint"});
    }
    state.values.copy_(at::from_blob(const_cast<std::byte*>(file.bytes.data()), file.shape,
                                     ops::torch_type(dtype)));
  }
  const auto entry = reader.metadata().find("step");
  LONGHAUL_ASSERT(entry != reader.metadata().end(), "optimizer.safetensors names its step");
  optimizer.set_steps_done(std::stoll(entry->second));
  parameters.refresh_compute();
}

}  // namespace longhaul::train
