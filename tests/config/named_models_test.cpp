#include "config/named_models.h"

#include <gtest/gtest.h>

#include <set>

#include "config/shapes.h"

namespace longhaul::config {
namespace {

/// Parameters of the base model.
std::int64_t parameters_of(const ModelConfig& model) {
  std::int64_t total = 0;
  for (const ParamSpec& spec : build_registry(model, {.full = true})) {
    total += spec.tied_to ? 0 : spec.num_elements();
  }
  return total;
}

TEST(NamedModels, HaveThePublishedNumberOfParameters) {
  const std::pair<const char*, std::int64_t> published[] = {
      {"smollm2-135m", 134'515'008},    {"llama3.2-1b", 1'235'814'400},
      {"llama3.2-3b", 3'212'749'824},   {"llama3.1-8b", 8'030'261'248},
      {"llama3.1-70b", 70'553'706'496}, {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-1.5b", 1'543'714'304},  {"qwen2.5-3b", 3'085'938'688},
      {"qwen2.5-7b", 7'615'616'512},    {"qwen2.5-14b", 14'770'033'664},
      {"qwen2.5-32b", 32'763'876'352},  {"qwen2.5-72b", 72'706'203'648},
      {"qwen3-0.6b", 596'049'920},      {"qwen3-1.7b", 1'720'574'976},
      {"qwen3-4b", 4'022'468'096},      {"qwen3-8b", 8'190'735'360},
      {"qwen3-14b", 14'768'307'200},    {"qwen3-32b", 32'762'123'264}};
  for (const auto& [name, parameters] : published) {
    const auto model = find_named_model(name);
    ASSERT_TRUE(model.has_value()) << name;
    EXPECT_EQ(parameters_of(*model), parameters) << name;
  }
}

TEST(NamedModels, EveryNameIsFoundOnce) {
  std::set<std::string_view> seen;
  for (const std::string_view name : named_models()) {
    EXPECT_TRUE(seen.insert(name).second) << name;
    const auto model = find_named_model(name);
    ASSERT_TRUE(model.has_value()) << name;
    EXPECT_EQ(model->num_heads % model->num_kv_heads, 0) << name;
    EXPECT_FALSE(model->model_type.empty()) << name;
  }
  EXPECT_FALSE(find_named_model("qwen2.5-8b"));
  EXPECT_FALSE(find_named_model(""));
}

}  // namespace
}  // namespace longhaul::config
