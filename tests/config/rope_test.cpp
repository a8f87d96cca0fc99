// Inverse frequencies against transformers' own numbers.
#include "config/rope.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>

#include "base/file.h"
#include "base/json.h"

namespace longhaul::config {
namespace {

float from_hex(const std::string& digits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16)));
}

TEST(Rope, FrequenciesEqualTransformersToTheLastBitOfAPower) {
  const std::string path = LONGHAUL_SOURCE_DIR "/tests/golden/config/configs.json";
  const base::OrderedJson cases = base::parse_ordered_json(base::read_file(path), path)["cases"];
  std::size_t checked = 0;
  std::size_t equal = 0;
  for (const base::OrderedJson& entry : cases) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const ModelConfig model = parse_model_config(entry["config"].dump(), "config.json");
    const std::vector<float> frequencies = rope_inverse_frequencies(model);
    ASSERT_EQ(frequencies.size(), entry["inv_freq"].size());
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const float expected = from_hex(entry["inv_freq"][i].get<std::string>());
      EXPECT_LE(std::abs(frequencies[i] - expected), 4e-7F * expected) << "index " << i;
      ++checked;
      equal += frequencies[i] == expected ? 1U : 0U;
    }
  }
  EXPECT_GT(checked, 500U);
  // Smoothing amplifies one last bit; the library's power function and transformers' vectorised one
  // differ in the last bit now and then.
  EXPECT_GE(equal * 100, checked * 90) << equal << " of " << checked;
}

}  // namespace
}  // namespace longhaul::config
