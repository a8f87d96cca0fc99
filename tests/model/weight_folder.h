// Model and adapter folders made of tensors, for the tests of loading.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

namespace longhaul::testing {

using NamedTensors = std::map<std::string, at::Tensor>;

/// Writes one safetensors file (fp32, fp16, bf16, fp64 or int32 tensors).
void write_tensors(const std::filesystem::path& file, const NamedTensors& tensors);

/// Writes the tensors over `shards` files with an index.
void write_sharded(const std::filesystem::path& folder, const NamedTensors& tensors,
                   std::size_t shards);

}  // namespace longhaul::testing
