#include "infer/merge_adapter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/scratch.h"
#include "infer/cached_decoder.h"
#include "infer/tiny_folder.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using base::Dtype;
using testing::tiny_model;

/// A base folder, an adapter folder and the request that merges them.
class Scene {
 public:
  explicit Scene(const std::string& name, Dtype dtype = Dtype::kFloat32,
                 const std::vector<std::string>& modules_to_save = {}, std::int64_t shards = 1)
      : model(tiny_model(name)),
        lora(testing::tiny_lora(model, modules_to_save)),
        parameters(testing::tiny_parameters(model, lora)) {
    testing::write_model_folder(base(), model, parameters, dtype, shards);
    testing::write_adapter_folder(adapter(), base().string(), lora, parameters);
    request.model_folder = base();
    request.adapter = {adapter(), lora};
    request.output_folder = scratch / "merged";
  }

  [[nodiscard]] fs::path base() const { return scratch / "base"; }
  [[nodiscard]] fs::path adapter() const { return scratch / "adapter"; }
  [[nodiscard]] fs::path output() const { return scratch / "merged"; }
  infer::MergeReport merge() const { return infer::merge_adapter(model, request); }

  test::ScratchFolder scratch;
  config::ModelConfig model;
  config::LoraSpec lora;
  model::Parameters parameters;
  infer::MergeRequest request;
};

std::vector<float> read_floats(const base::SafetensorsReader& reader, const std::string& name) {
  const base::TensorView& view = reader.at(name);
  std::vector<float> values(static_cast<std::size_t>(view.num_elements()));
  base::to_float(view, name, values);
  return values;
}

/// W + scale·B·A of a module, element by element in double.
std::vector<double> merged_by_hand(const Scene& scene, const std::string& module) {
  const model::Parameters& p = scene.parameters;
  const at::Tensor w = p.compute(p.find(module + ".weight")).to(at::kDouble);
  const at::Tensor a = p.compute(p.find(module + ".lora_A.weight")).to(at::kDouble);
  const at::Tensor b = p.compute(p.find(module + ".lora_B.weight")).to(at::kDouble);
  std::vector<double> result;
  for (std::int64_t n = 0; n < w.size(0); ++n) {
    for (std::int64_t k = 0; k < w.size(1); ++k) {
      double sum = 0;
      for (std::int64_t r = 0; r < a.size(0); ++r) {
        sum += b[n][r].item<double>() * a[r][k].item<double>();
      }
      result.push_back(w[n][k].item<double>() + scene.lora.scale() * sum);
    }
  }
  return result;
}

TEST(MergeAdapter, AddsScaledBTimesAToEveryTargetAndNothingElse) {
  const Scene scene("qwen2");
  const infer::MergeReport report = scene.merge();
  EXPECT_EQ(report.merged_matrices, 14);
  EXPECT_EQ(report.replaced_tensors, 0);
  const base::SafetensorsReader base(scene.base());
  const base::SafetensorsReader merged(scene.output());
  ASSERT_EQ(merged.tensors().size(), base.tensors().size());
  for (const auto& [name, view] : base.tensors()) {
    const std::vector<float> got = read_floats(merged, name);
    const std::string module = name.substr(0, name.rfind('.'));
    if (!name.ends_with("proj.weight")) {
      EXPECT_EQ(got, read_floats(base, name)) << name;
      continue;
    }
    const std::vector<double> want = merged_by_hand(scene, module);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-6) << name << " element " << i;
    }
  }
}

TEST(MergeAdapter, KeepsTheBasesTypeAndRoundsOnce) {
  const Scene scene("llama", Dtype::kBFloat16);
  scene.merge();
  const base::SafetensorsReader base(scene.base());
  const base::SafetensorsReader merged(scene.output());
  const std::string module = "model.layers.1.mlp.down_proj";
  EXPECT_EQ(merged.at(module + ".weight").dtype, Dtype::kBFloat16);
  // The stored base is already rounded; the sum is rounded once more.
  const std::vector<float> stored = read_floats(base, module + ".weight");
  const std::vector<double> exact = merged_by_hand(scene, module);
  const std::vector<float> got = read_floats(merged, module + ".weight");
  const at::Tensor w = scene.parameters.compute(scene.parameters.find(module + ".weight"));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double added = exact[i] - w.view(-1)[static_cast<std::int64_t>(i)].item<double>();
    const auto sum = static_cast<float>(static_cast<double>(stored[i]) + added);
    ASSERT_NEAR(got[i], sum, std::abs(sum) / 256 + 1e-7) << i;
  }
  EXPECT_EQ(test::get_file(scene.output() / "config.json"),
            test::get_file(scene.base() / "config.json"));
}

TEST(MergeAdapter, StoresTheTypeThatIsAskedFor) {
  Scene scene("llama", Dtype::kBFloat16);
  scene.request.dtype = Dtype::kFloat32;
  scene.request.max_model_len = 999;
  scene.merge();
  const base::SafetensorsReader merged(scene.output());
  for (const auto& [name, view] : merged.tensors()) {
    EXPECT_EQ(view.dtype, Dtype::kFloat32) << name;
  }
  const base::Json config =
      base::parse_json(test::get_file(scene.output() / "config.json"), "config.json");
  EXPECT_EQ(config["torch_dtype"], "float32");
  EXPECT_EQ(config["max_position_embeddings"], 999);
}

TEST(MergeAdapter, KeepsTheBasesShards) {
  const Scene scene("qwen3", Dtype::kFloat16, {}, 3);
  const infer::MergeReport report = scene.merge();
  EXPECT_EQ(report.weight_files.size(), 3U);
  const base::SafetensorsReader base(scene.base());
  const base::SafetensorsReader merged(scene.output());
  std::int64_t bytes = 0;
  for (const auto& [name, view] : base.tensors()) {
    EXPECT_EQ(merged.at(name).file->path().filename(), view.file->path().filename());
    bytes += static_cast<std::int64_t>(merged.at(name).bytes.size());
  }
  const base::Json index =
      base::parse_json(test::get_file(scene.output() / "model.safetensors.index.json"), "index");
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
}

TEST(MergeAdapter, TakesSavedModulesInPlaceOfTheBases) {
  const Scene scene("llama", Dtype::kFloat32, {"lm_head", "norm"});
  // The base's head differs from the adapter's: the folder is written from other random values.
  model::Parameters other(config::build_registry(scene.model, {.lora = scene.lora}), at::kFloat);
  testing::randomise(other, 77);
  fs::remove_all(scene.base());
  testing::write_model_folder(scene.base(), scene.model, other, Dtype::kFloat32);
  const infer::MergeReport report = scene.merge();
  EXPECT_FALSE(report.untied);
  const base::SafetensorsReader base(scene.base());
  const base::SafetensorsReader adapter(scene.adapter() / "adapter_model.safetensors");
  const base::SafetensorsReader merged(scene.output());
  for (const char* const name : {"lm_head.weight", "model.norm.weight"}) {
    EXPECT_NE(read_floats(merged, name), read_floats(base, name)) << name;
    EXPECT_EQ(read_floats(merged, name),
              read_floats(adapter, std::string("base_model.model.") + name));
  }
  EXPECT_EQ(read_floats(merged, "model.embed_tokens.weight"),
            read_floats(base, "model.embed_tokens.weight"));
}

TEST(MergeAdapter, SeparatesTiedEmbeddingsWhenOneOfThemWasTrained) {
  const Scene scene("smol", Dtype::kFloat32, {"embed_tokens"});
  model::Parameters other(config::build_registry(scene.model, {.lora = scene.lora}), at::kFloat);
  testing::randomise(other, 78);
  fs::remove_all(scene.base());
  testing::write_model_folder(scene.base(), scene.model, other, Dtype::kFloat32);
  const infer::MergeReport report = scene.merge();
  EXPECT_TRUE(report.untied);
  const base::SafetensorsReader base(scene.base());
  const base::SafetensorsReader adapter(scene.adapter() / "adapter_model.safetensors");
  const base::SafetensorsReader merged(scene.output());
  EXPECT_EQ(read_floats(merged, "lm_head.weight"), read_floats(base, "model.embed_tokens.weight"));
  EXPECT_EQ(read_floats(merged, "model.embed_tokens.weight"),
            read_floats(adapter, "base_model.model.model.embed_tokens.weight"));
  const base::Json config =
      base::parse_json(test::get_file(scene.output() / "config.json"), "config.json");
  EXPECT_EQ(config["tie_word_embeddings"], false);
}

TEST(MergeAdapter, LeavesTiedEmbeddingsTied) {
  const Scene scene("qwen2_tied");
  EXPECT_FALSE(scene.merge().untied);
  EXPECT_EQ(base::SafetensorsReader(scene.output()).tensors().count("lm_head.weight"), 0U);
}

TEST(MergeAdapter, ComputesTheSameLogitsAsBaseAndAdapter) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> cases = {
      {"llama", {}},          {"qwen2", {}}, {"qwen2_tied", {}},
      {"qwen3", {"lm_head"}}, {"smol", {}},  {"smol", {"embed_tokens"}}};
  for (const auto& [name, modules_to_save] : cases) {
    const Scene scene(name, Dtype::kFloat32, modules_to_save);
    model::Parameters other(config::build_registry(scene.model, {.lora = scene.lora}), at::kFloat);
    testing::randomise(other, 79);
    testing::write_model_folder(scene.base(), scene.model, other, Dtype::kFloat32);
    scene.merge();
    const std::vector<std::int32_t> ids = testing::make_document(19, 0, 48, 3).ids;
    infer::LoadedModel unmerged(scene.base(), scene.model, scene.request.adapter, Dtype::kFloat32);
    infer::LoadedModel merged(scene.output(), config::read_model_config(scene.output()),
                              std::nullopt, Dtype::kFloat32);
    infer::CachedDecoder first(unmerged.config(), unmerged.store());
    infer::CachedDecoder second(merged.config(), merged.store());
    const at::Tensor want = first.append(ids);
    const at::Tensor got = second.append(ids);
    EXPECT_LE((got - want).abs().max().item<double>(), 1e-5 * want.abs().max().item<double>())
        << name;
  }
}

TEST(MergeAdapter, RefusesAnExistingFolderUnlessAllowed) {
  Scene scene("llama");
  base::make_folder(scene.output());
  test::put_file(scene.output() / "model-00001-of-00002.safetensors", "old weights");
  test::put_file(scene.output() / "notes.txt", "mine");
  EXPECT_NE(test::message_of<base::UserError>([&] { scene.merge(); }).find("--exist_ok true"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(scene.output() / "config.json"));
  scene.request.exist_ok = true;
  scene.merge();
  EXPECT_TRUE(fs::exists(scene.output() / "model.safetensors"));
  EXPECT_FALSE(fs::exists(scene.output() / "model-00001-of-00002.safetensors"));
  EXPECT_EQ(test::get_file(scene.output() / "notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(scene.scratch / ".tmp-merged"));
  EXPECT_FALSE(fs::exists(scene.output() / ".tmp-merge"));
}

TEST(MergeAdapter, ReplacesTheModelInAFolderOnAnotherDisk) {
  Scene scene("llama");
  const fs::path disk = fs::path("/dev/shm") / scene.scratch.path().filename();
  if (!fs::is_directory("/dev/shm")) {
    GTEST_SKIP() << "no second file system";
  }
  fs::create_directory(disk);
  fs::create_directory_symlink(disk, scene.output());
  fs::create_directory(disk / ".tmp-merge");
  test::put_file(disk / ".tmp-merge/left-over", "of a merge that was killed");
  scene.request.exist_ok = true;
  const std::string fault = test::message_of<base::Error>([&] { scene.merge(); });
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(disk)) {
    names.insert(entry.path().filename().string());
  }
  fs::remove_all(disk);
  EXPECT_EQ(fault, "<no exception>");
  EXPECT_EQ(names, (std::set<std::string>{"config.json", "model.safetensors", "tokenizer.json"}));
}

TEST(MergeAdapter, OnAFullDiskKeepsTheOldFilesOfAnExistingFolder) {
  Scene scene("llama");
  base::make_folder(scene.output());
  test::put_file(scene.output() / "model.safetensors", "old weights");
  scene.request.exist_ok = true;
  {
    const test::FileSizeLimit limit(20000);
    EXPECT_THROW(scene.merge(), base::SystemError);
  }
  EXPECT_EQ(test::get_file(scene.output() / "model.safetensors"), "old weights");
  EXPECT_EQ(std::distance(fs::directory_iterator(scene.output()), {}), 1);
}

TEST(MergeAdapter, RefusesItsOwnInputsAsOutput) {
  Scene scene("llama");
  scene.request.exist_ok = true;
  for (const fs::path& own : {scene.base(), scene.adapter()}) {
    scene.request.output_folder = own;
    EXPECT_NE(test::message_of<base::UserError>([&] { scene.merge(); }).find("being merged"),
              std::string::npos);
  }
}

TEST(MergeAdapter, RefusesAnAdapterOfAnotherModelAndLeavesNothing) {
  Scene scene("llama");
  const Scene other("smol");
  fs::remove_all(scene.adapter());
  fs::copy(other.adapter(), scene.adapter(), fs::copy_options::recursive);
  EXPECT_NE(test::message_of<base::UserError>([&] { scene.merge(); }).find("another model"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(scene.output()));
  EXPECT_FALSE(fs::exists(scene.scratch / ".tmp-merged"));
}

TEST(MergeAdapter, NamesATensorThatIsNotFiniteOrTooLarge) {
  Scene scene("llama");
  const std::int64_t norm = scene.parameters.find("model.norm.weight");
  scene.parameters.assign(norm, at::full({24}, 1e30));
  testing::write_model_folder(scene.base(), scene.model, scene.parameters, Dtype::kFloat32);
  scene.request.dtype = Dtype::kFloat16;
  EXPECT_NE(test::message_of<base::UserError>([&] {
              scene.merge();
            }).find("model.norm.weight is too large"),
            std::string::npos);
  scene.parameters.assign(norm, at::full({24}, NAN));
  testing::write_model_folder(scene.base(), scene.model, scene.parameters, Dtype::kFloat32);
  scene.request.dtype.reset();
  EXPECT_NE(
      test::message_of<base::UserError>([&] { scene.merge(); }).find("model.norm.weight holds NaN"),
      std::string::npos);
  EXPECT_FALSE(fs::exists(scene.output()));
  EXPECT_FALSE(fs::exists(scene.scratch / ".tmp-merged"));
}

TEST(MergeAdapter, OnAFullDiskLeavesNothing) {
  const Scene scene("llama");
  {
    const test::FileSizeLimit limit(20000);
    EXPECT_THROW(scene.merge(), base::SystemError);
  }
  EXPECT_FALSE(fs::exists(scene.output()));
  EXPECT_FALSE(fs::exists(scene.scratch / ".tmp-merged"));
}

}  // namespace
}  // namespace longhaul
