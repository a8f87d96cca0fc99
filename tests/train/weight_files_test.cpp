// The tensor files of a checkpoint: what is in them, and what comes back.
#include "train/weight_files.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/scratch.h"
#include "model/loader.h"
#include "model/tiny_models.h"

namespace longhaul::train {
namespace {

using model::Parameters;
using ::testing::HasSubstr;
using testing::Tuning;

Parameters make(const std::string& name, Tuning tuning, at::ScalarType type = at::kFloat,
                const std::vector<std::string>& saved = {}) {
  const config::ModelConfig model = testing::tiny_model(name);
  config::TuningSpec spec = testing::tiny_tuning(model, tuning);
  if (spec.lora) {
    spec.lora->modules_to_save = saved;
  }
  return {config::build_registry(model, spec), type};
}

/// Values that neither bfloat16 nor float16 holds exactly, other ones for every seed.
void fill(Parameters& parameters, std::uint64_t seed) { testing::randomise(parameters, seed); }

std::vector<float> values_of(const base::SafetensorsReader& reader, const std::string& name) {
  const base::TensorView& view = reader.at(name);
  std::vector<float> values(static_cast<std::size_t>(view.num_elements()));
  base::to_float(view, name, values);
  return values;
}

std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kFloat).contiguous().view({-1});
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

TEST(AdapterWeights, HoldTheMastersUnderPeftsNames) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const test::ScratchFolder folder;
    Parameters parameters = make("smol", Tuning::kLora, type, {"embed_tokens"});
    fill(parameters, 1);
    write_adapter_weights(folder.path(), parameters);
    const base::SafetensorsReader reader(folder / "adapter_model.safetensors");
    std::size_t count = 0;
    for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
      const config::ParamSpec& spec = parameters.registry()[i];
      if (!spec.in_adapter) {
        continue;
      }
      ++count;
      const std::string name = "base_model.model." + spec.name;
      EXPECT_EQ(reader.at(name).dtype, base::Dtype::kFloat32);
      EXPECT_EQ(reader.at(name).shape, spec.shape);
      EXPECT_EQ(values_of(reader, name),
                values_of(parameters.master(static_cast<std::int64_t>(i))));
    }
    EXPECT_EQ(reader.tensors().size(), count);
    EXPECT_EQ(count, 2U * 7 * 2 + 1);
    EXPECT_EQ(reader.metadata().at("format"), "pt");
  }
}

TEST(AdapterWeights, LoadIntoAFreshModel) {
  const test::ScratchFolder folder;
  Parameters written = make("qwen3", Tuning::kLora);
  fill(written, 2);
  write_adapter_weights(folder.path(), written);
  Parameters read = make("qwen3", Tuning::kLora);
  fill(read, 3);
  model::load_adapter(folder.path(), read);
  EXPECT_TRUE(read.flat_masters().equal(written.flat_masters()));
}

TEST(FullWeights, ComeBackExactlyInFp32AndRoundedOnceBelow) {
  for (const auto& [dtype, type] : {std::pair{base::Dtype::kFloat32, at::kFloat},
                                    {base::Dtype::kBFloat16, at::kBFloat16},
                                    {base::Dtype::kFloat16, at::kHalf}}) {
    const test::ScratchFolder folder;
    Parameters written = make("qwen2_tied", Tuning::kFull);
    fill(written, 4);
    write_full_weights(folder.path(), written, dtype);
    Parameters read = make("qwen2_tied", Tuning::kFull);
    model::BaseWeights(folder.path()).load(read);
    EXPECT_TRUE(read.flat_masters().equal(written.flat_masters().to(type).to(at::kFloat)));
    const base::SafetensorsReader reader(folder.path());
    EXPECT_FALSE(reader.tensors().contains("lm_head.weight"));  // tied: once
    EXPECT_EQ(reader.at("model.norm.weight").dtype, dtype);
  }
}

TEST(FullWeights, UseTheMasterOfATrainedAndTheCopyOfAFrozenParameter) {
  const test::ScratchFolder folder;
  const config::ModelConfig model = testing::tiny_model("llama");
  Parameters parameters(
      config::build_registry(model, {.full = true, .freeze_prefixes = {"model.layers.0"}}),
      at::kBFloat16);
  fill(parameters, 5);
  write_full_weights(folder.path(), parameters, base::Dtype::kFloat32);
  const base::SafetensorsReader reader(folder.path());
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    const auto param = static_cast<std::int64_t>(i);
    EXPECT_EQ(values_of(reader, spec.name),
              values_of(spec.trainable ? parameters.master(param) : parameters.compute(param)))
        << spec.name;
  }
}

TEST(FullWeights, AreCutIntoShardsOfTheAskedSize) {
  const test::ScratchFolder folder;
  Parameters written = make("smol", Tuning::kFull);
  fill(written, 6);
  constexpr std::int64_t kShard = 5000;
  write_full_weights(folder.path(), written, base::Dtype::kFloat32, kShard);
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors"));
  const std::string index_path = (folder / "model.safetensors.index.json").string();
  const base::OrderedJson index = base::parse_ordered_json(base::read_file(index_path), index_path);
  EXPECT_EQ(index["metadata"]["total_size"], 4 * written.total_elements());
  std::set<std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    files.insert(file.get<std::string>());
  }
  ASSERT_GT(files.size(), 3U);
  std::size_t number = 0;
  for (const std::string& file : files) {
    char expected[64];
    std::snprintf(expected, sizeof(expected), "model-%05zu-of-%05zu.safetensors", ++number,
                  files.size());
    EXPECT_EQ(file, expected);
    const base::SafetensorsReader shard(folder / file);
    std::int64_t bytes = 0;
    for (const auto& [name, view] : shard.tensors()) {
      bytes += static_cast<std::int64_t>(view.bytes.size());
      EXPECT_EQ(index["weight_map"][name], file);
    }
    EXPECT_TRUE(bytes <= kShard || shard.tensors().size() == 1) << file << ": " << bytes;
  }
  Parameters read = make("smol", Tuning::kFull);
  model::BaseWeights(folder.path()).load(read);
  EXPECT_TRUE(read.flat_masters().equal(written.flat_masters()));
}

/// An optimizer that has done some steps.
void train_a_little(Parameters& parameters, AdamW& optimizer) {
  at::manual_seed(1);
  for (int step = 0; step < 3; ++step) {
    parameters.flat_gradients().copy_(at::randn(parameters.flat_gradients().sizes()));
    optimizer.step(1e-3, 0.7);
  }
}

TEST(OptimizerFile, BringsBackMastersMomentsAndTheStep) {
  for (const auto& [tuning, type] : {std::pair{Tuning::kLora, at::kFloat},
                                     {Tuning::kLora, at::kBFloat16},
                                     {Tuning::kFull, at::kFloat}}) {
    const test::ScratchFolder folder;
    Parameters written = make("qwen2", tuning, type);
    fill(written, 7);
    AdamW optimizer(written, {});
    train_a_little(written, optimizer);
    write_optimizer(folder.path(), written, optimizer);

    Parameters read = make("qwen2", tuning, type);
    fill(read, 8);
    AdamW other(read, {});
    read_optimizer(folder.path(), read, other);
    EXPECT_EQ(other.steps_done(), 3);
    for (const model::FlatSegment& segment : read.segments()) {
      EXPECT_TRUE(read.master(segment.param).equal(written.master(segment.param)));
      EXPECT_TRUE(read.compute(segment.param).equal(written.compute(segment.param)));
      EXPECT_TRUE(other.exp_avg(segment).equal(optimizer.exp_avg(segment)));
      EXPECT_TRUE(other.exp_avg_sq(segment).equal(optimizer.exp_avg_sq(segment)));
    }
  }
}

constexpr AdamWOptions kSmallState{.state_dtype = base::Dtype::kBFloat16, .seed = 5};

TEST(OptimizerFile, HoldsBf16MomentsInTheirTypeAndBringsThemBack) {
  const test::ScratchFolder folder;
  Parameters written = make("qwen2", Tuning::kFull, at::kBFloat16);
  fill(written, 7);
  AdamW optimizer(written, kSmallState);
  train_a_little(written, optimizer);
  write_optimizer(folder.path(), written, optimizer);
  const base::SafetensorsReader reader(folder / "optimizer.safetensors");
  for (const auto& [name, view] : reader.tensors()) {
    EXPECT_EQ(view.dtype,
              name.starts_with("master/") ? base::Dtype::kFloat32 : base::Dtype::kBFloat16)
        << name;
  }
  Parameters read = make("qwen2", Tuning::kFull, at::kBFloat16);
  AdamW other(read, kSmallState);
  read_optimizer(folder.path(), read, other);
  EXPECT_EQ(other.steps_done(), 3);
  for (const model::FlatSegment& segment : read.segments()) {
    EXPECT_TRUE(read.master(segment.param).equal(written.master(segment.param)));
    EXPECT_TRUE(other.exp_avg(segment).equal(optimizer.exp_avg(segment)));
    EXPECT_TRUE(other.exp_avg_sq(segment).equal(optimizer.exp_avg_sq(segment)));
  }
}

TEST(OptimizerFile, IsOrganisedByName) {
  const test::ScratchFolder folder;
  Parameters parameters = make("llama", Tuning::kLora);
  fill(parameters, 9);
  AdamW optimizer(parameters, {});
  train_a_little(parameters, optimizer);
  write_optimizer(folder.path(), parameters, optimizer);
  const base::SafetensorsReader reader(folder / "optimizer.safetensors");
  EXPECT_EQ(reader.tensors().size(), 3 * parameters.segments().size());
  EXPECT_EQ(reader.metadata().at("step"), "3");
  const std::string name = "model.layers.1.mlp.down_proj.lora_B.weight";
  EXPECT_EQ(values_of(reader, "master/" + name),
            values_of(parameters.master(parameters.find(name))));
  EXPECT_EQ(reader.at("exp_avg/" + name).shape, (std::vector<std::int64_t>{24, 4}));
}

TEST(OptimizerFile, ThatDoesNotFitIsRefusedByName) {
  const test::ScratchFolder folder;
  Parameters parameters = make("llama", Tuning::kLora);
  fill(parameters, 10);
  AdamW optimizer(parameters, {});
  const auto error = [&](Parameters& other) {
    AdamW state(other, {});
    return test::message_of<base::UserError>([&] { read_optimizer(folder.path(), other, state); });
  };
  EXPECT_THAT(error(parameters), ::testing::AllOf(HasSubstr("has no optimizer state"),
                                                  HasSubstr("--save_only_model")));
  EXPECT_THAT(test::message_of<base::UserError>(
                  [&] { read_optimizer(std::string(300, 'x'), parameters, optimizer); }),
              HasSubstr("cannot be looked at: File name too long"));
  write_optimizer(folder.path(), parameters, optimizer);
  Parameters full = make("llama", Tuning::kFull);
  EXPECT_THAT(error(full), HasSubstr("exp_avg/model.embed_tokens.weight"));
  Parameters wider = make("qwen3", Tuning::kLora);
  EXPECT_THAT(error(wider), HasSubstr("does not fit this run's parameters"));
}

TEST(WeightFiles, AFullDiskIsAProblemOfTheMachine) {
  const test::ScratchFolder folder;
  Parameters parameters = make("llama", Tuning::kFull);
  fill(parameters, 11);
  AdamW optimizer(parameters, {});
  const test::FileSizeLimit limit(20000);
  EXPECT_THROW(write_full_weights(folder.path(), parameters, base::Dtype::kFloat32),
               base::SystemError);
  EXPECT_THROW(write_optimizer(folder.path(), parameters, optimizer), base::SystemError);
}

}  // namespace
}  // namespace longhaul::train
