#include "model/weight_folder.h"

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/safetensors.h"

namespace longhaul::testing {
namespace {

base::Dtype file_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return base::Dtype::kFloat32;
    case at::kHalf:
      return base::Dtype::kFloat16;
    case at::kBFloat16:
      return base::Dtype::kBFloat16;
    case at::kDouble:
      return base::Dtype::kFloat64;
    case at::kInt:
      return base::Dtype::kInt32;
    default:
      throw std::invalid_argument("no such type in these tests");
  }
}

}  // namespace

void write_tensors(const std::filesystem::path& file, const NamedTensors& tensors) {
  std::vector<at::Tensor> alive;
  std::vector<base::TensorToWrite> list;
  for (const auto& [name, tensor] : tensors) {
    alive.push_back(tensor.contiguous());
    list.push_back(
        {.name = name,
         .dtype = file_type(tensor.scalar_type()),
         .shape = tensor.sizes().vec(),
         .bytes = {static_cast<const std::byte*>(alive.back().data_ptr()), alive.back().nbytes()}});
  }
  base::write_safetensors(file, list, {{"format", "pt"}});
}

void write_sharded(const std::filesystem::path& folder, const NamedTensors& tensors,
                   std::size_t shards) {
  std::vector<NamedTensors> parts(shards);
  base::OrderedJson map = base::OrderedJson::object();
  std::size_t next = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t part = next++ % shards;
    parts[part][name] = tensor;
    map[name] = fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, shards);
  }
  for (std::size_t part = 0; part < shards; ++part) {
    write_tensors(folder / fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, shards),
                  parts[part]);
  }
  const base::OrderedJson index = {{"metadata", base::OrderedJson::object()}, {"weight_map", map}};
  base::write_file_atomically(folder / "model.safetensors.index.json", index.dump());
}

}  // namespace longhaul::testing
