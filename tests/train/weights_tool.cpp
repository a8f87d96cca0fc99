// Writes checkpoints for weights_oracle.py: `weights_tool FOLDER MODEL` makes in FOLDER
//   base/       a tiny model as one file, with its config.json
//   sharded/    the same weights through write_full_weights with small shards
//   adapter/    adapter weights; optimizer/  the optimizer's state after two steps
//   expected.safetensors   what the three hold, by their names
#include <ATen/ATen.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "infer/tiny_folder.h"
#include "model/loader.h"
#include "model/tiny_models.h"
#include "model/weight_folder.h"
#include "train/optimizer.h"
#include "train/weight_files.h"

namespace {

namespace fs = std::filesystem;
namespace testing = longhaul::testing;
namespace config = longhaul::config;
namespace model = longhaul::model;
namespace train = longhaul::train;

void write_all(const fs::path& folder, const std::string& name) {
  const config::ModelConfig shape = testing::tiny_model(name);
  const config::LoraSpec lora = testing::tiny_lora(shape, {"embed_tokens"});
  model::Parameters adapted = testing::tiny_parameters(shape, lora);
  testing::NamedTensors expected;

  model::Parameters full(config::build_registry(shape, {.full = true}), at::kFloat);
  testing::randomise(full, 21);
  testing::write_model_folder(folder / "base", shape, full, longhaul::base::Dtype::kFloat32);
  longhaul::base::make_folder(folder / "sharded");
  fs::copy_file(folder / "base" / "config.json", folder / "sharded" / "config.json");
  train::write_full_weights(folder / "sharded", full, longhaul::base::Dtype::kFloat32, 4000);
  for (const config::ParamSpec& spec : full.registry()) {
    if (!spec.tied_to) {
      expected["full/" + spec.name] = full.compute(full.find(spec.name));
    }
  }

  train::AdamW optimizer(adapted, {});
  at::manual_seed(4);
  for (int step = 0; step < 2; ++step) {
    adapted.flat_gradients().copy_(at::randn(adapted.flat_gradients().sizes()));
    optimizer.step(1e-2, 1);
  }
  for (const char* const part : {"adapter", "optimizer"}) {
    longhaul::base::make_folder(folder / part);
  }
  train::write_adapter_weights(folder / "adapter", adapted);
  train::write_optimizer(folder / "optimizer", adapted, optimizer);
  for (const model::FlatSegment& segment : adapted.segments()) {
    const config::ParamSpec& spec = adapted.registry()[static_cast<std::size_t>(segment.param)];
    expected["adapter/" + model::adapter_tensor_name(spec)] = adapted.master(segment.param);
    expected["optimizer/master/" + spec.name] = adapted.master(segment.param);
    expected["optimizer/exp_avg/" + spec.name] = optimizer.exp_avg(segment);
    expected["optimizer/exp_avg_sq/" + spec.name] = optimizer.exp_avg_sq(segment);
  }
  testing::write_tensors(folder / "expected.safetensors", expected);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  try {
    write_all(argv[1], argv[2]);
  } catch (const longhaul::base::Error& error) {
    std::fputs(error.what(), stderr);
    return 3;
  }
  return 0;
}
