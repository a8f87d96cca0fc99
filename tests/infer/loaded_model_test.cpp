#include "infer/loaded_model.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/scratch.h"
#include "infer/tiny_folder.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

struct Folders {
  explicit Folders(const std::string& name, const std::vector<std::string>& modules_to_save = {})
      : config(testing::tiny_model(name)), lora(testing::tiny_lora(config, modules_to_save)) {
    const model::Parameters parameters = testing::tiny_parameters(config, lora);
    testing::write_model_folder(scratch / "model", config, parameters, base::Dtype::kFloat32);
    testing::write_adapter_folder(scratch / "adapter", "model", lora, parameters);
  }
  test::ScratchFolder scratch;
  config::ModelConfig config;
  config::LoraSpec lora;
};

TEST(LoadedModel, HoldsBaseAndAdapterWithoutAnyGradients) {
  const Folders folders("qwen3");
  infer::LoadedModel model(folders.scratch / "model", folders.config,
                           infer::AdapterSource{folders.scratch / "adapter", folders.lora},
                           base::Dtype::kBFloat16);
  EXPECT_EQ(model.parameters().trainable_elements(), 0);
  EXPECT_EQ(model.parameters().flat_gradients().numel(), 0);
  EXPECT_EQ(model.parameters().compute_type(), at::kBFloat16);
  EXPECT_EQ(model.store().acquire(1, model::Pass::kForward)->mlp_down->lora_columns(), 4);
  infer::LoadedModel plain(folders.scratch / "model", folders.config, std::nullopt,
                           base::Dtype::kFloat32);
  EXPECT_EQ(plain.store().acquire(1, model::Pass::kForward)->mlp_down->lora_columns(), 0);
}

TEST(LoadedModel, RefusesAnAdapterOfAnotherModel) {
  const Folders small("qwen2_tied");
  const Folders other("smol");
  const auto load = [&] {
    infer::LoadedModel(small.scratch / "model", small.config,
                       infer::AdapterSource{other.scratch / "adapter", small.lora},
                       base::Dtype::kFloat32);
  };
  EXPECT_NE(test::message_of<base::UserError>(load).find("adapter of another model"),
            std::string::npos);
}

}  // namespace
}  // namespace longhaul
