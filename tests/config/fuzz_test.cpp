// Seeded mutations of the two texts of foreign origin that this folder reads: whatever comes in,
// the answer is a value or a UserError, never a crash, a hang or another exception.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "config/model_config.h"
#include "config/option_file.h"
#include "config/options.h"
#include "config/shapes.h"
#include "config/test_models.h"
#include "config/validate.h"

namespace longhaul::config {
namespace {

constexpr std::uint64_t kSeed = 20260729;

/// Draws numbers one after another from the counter-based generator.
class Draw {
 public:
  explicit Draw(std::uint64_t stream) : rng_(kSeed, base::RngPurpose::kSampling, stream) {}
  std::size_t below(std::size_t bound) { return rng_.below(next_++, bound); }

 private:
  base::CounterRng rng_;
  std::uint64_t next_ = 0;
};

const std::vector<std::string>& fragments() {
  static const std::vector<std::string> kFragments = {"null",
                                                      "true",
                                                      "-1",
                                                      "0",
                                                      "1e308",
                                                      "1e-400",
                                                      "18446744073709551615",
                                                      "9223372036854775808",
                                                      "\"\"",
                                                      "\"x\"",
                                                      "[]",
                                                      "{}",
                                                      "[[[[",
                                                      "}}",
                                                      ",",
                                                      ":",
                                                      "\\",
                                                      "\"",
                                                      "\n",
                                                      "\xff\xfe",
                                                      "\xed\xa0\x80",
                                                      "\\ud800",
                                                      "0x1",
                                                      "NaN",
                                                      "yarn",
                                                      "llama3",
                                                      "rope_scaling",
                                                      "full_attention",
                                                      "2147483648",
                                                      "--",
                                                      "=",
                                                      "--model",
                                                      "--help",
                                                      "4096xA,",
                                                      "+offload",
                                                      "&a",
                                                      "*a",
                                                      "!!binary",
                                                      "? ",
                                                      "- ",
                                                      "%",
                                                      "99999999999999999999"};
  return kFragments;
}

std::string mutate(std::string text, Draw& draw) {
  const std::size_t edits = 1 + draw.below(6);
  for (std::size_t i = 0; i < edits; ++i) {
    const std::size_t at = draw.below(text.size() + 1);
    const std::size_t length = draw.below(12);
    switch (draw.below(5)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, fragments()[draw.below(fragments().size())]);
        break;
      case 2:
        text.insert(at, 1, static_cast<char>(draw.below(256)));
        break;
      case 3:
        text.insert(at, text.substr(draw.below(text.size() + 1), length));
        break;
      default:
        text.replace(at, std::min(length, text.size() - at),
                     fragments()[draw.below(fragments().size())]);
    }
  }
  return text;
}

/// Reads one text; true when it was accepted.
bool read_model(const std::string& text) {
  try {
    const ModelConfig model = parse_model_config(text, "config.json");
    EXPECT_GE(model.num_kv_heads, 1);
    EXPECT_EQ(model.num_heads % model.num_kv_heads, 0);
    EXPECT_EQ(model.head_dim % 2, 0);
    EXPECT_EQ(static_cast<std::int64_t>(rope_inverse_frequencies(model).size()),
              model.head_dim / 2);
    if (model.num_layers <= 64) {
      TuningSpec tuning;
      tuning.full = true;
      EXPECT_FALSE(build_registry(model, tuning).empty());
    }
    return true;
  } catch (const base::UserError& error) {
    for (const base::Problem& problem : error.problems()) {
      EXPECT_EQ(problem.line().find('\n'), std::string::npos);
    }
    return false;
  }
}

TEST(Fuzz, ConfigJsonGivesAModelOrAUserError) {
  const std::vector<std::string> seeds = {
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
          "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
          "vocab_size": 100, "rope_theta": 500000.0, "eos_token_id": [1, 2], "tie_word_embeddings": true,
          "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-05})",
      R"({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
          "num_hidden_layers": 2, "num_key_value_heads": 4, "vocab_size": 100, "head_dim": 16,
          "use_sliding_window": false, "sliding_window": null, "max_window_layers": 28,
          "layer_types": ["full_attention", "full_attention"], "rope_parameters": {"rope_theta": 1000000,
          "rope_type": "default"}, "dtype": "float32", "attention_bias": false})"};
  std::size_t accepted = 0;
  for (std::uint64_t run = 0; run < 4000; ++run) {
    Draw draw(run);
    SCOPED_TRACE(testing::Message() << "run " << run);
    accepted += read_model(mutate(seeds[run % seeds.size()], draw)) ? 1U : 0U;
  }
  EXPECT_GT(accepted, 100U) << "mutations reach the rules behind the parser";
}

/// A command line with a few words dropped, changed or added.
std::vector<std::string> mutate_words(std::vector<std::string> words, Draw& draw) {
  for (std::size_t edits = 1 + draw.below(3); edits > 0 && !words.empty(); --edits) {
    const std::size_t at = draw.below(words.size());
    const auto place = words.begin() + static_cast<std::ptrdiff_t>(at);
    switch (draw.below(3)) {
      case 0:
        words.erase(place);
        break;
      case 1:
        words[at] = mutate(words[at], draw);
        break;
      default:
        words.insert(place, fragments()[draw.below(fragments().size())]);
    }
  }
  // A first word that names a file would be opened; files have a test of their own.
  if (!words.empty() && is_option_file(words.front())) {
    words.front() += "l";
  }
  return words;
}

TEST(Fuzz, CommandLinesGiveAConfigOrUserErrors) {
  const std::vector<std::string> seed = {"--model",
                                         "m",
                                         "--dataset",
                                         "a.jsonl#5",
                                         "--lora_rank=8",
                                         "--target_modules",
                                         "q_proj",
                                         "v_proj",
                                         "--max_length",
                                         "3072",
                                         "--ulysses_seq_len",
                                         "1536",
                                         "--packing",
                                         "true",
                                         "--activation_policy",
                                         "1xA,1xD",
                                         "--gpu_memory_limit",
                                         "40GiB",
                                         "--lr_scheduler_type",
                                         "cosine_with_min_lr",
                                         "--lr_scheduler_kwargs",
                                         R"({"min_lr": 1e-6})",
                                         "--split_dataset_ratio",
                                         "0.1"};
  std::size_t accepted = 0;
  for (std::uint64_t run = 0; run < 2500; ++run) {
    Draw draw(1000000 + run);
    const std::vector<std::string> words = mutate_words(seed, draw);
    SCOPED_TRACE(testing::Message() << "run " << run);
    try {
      const LaunchInfo launch{.ranks = 1 + static_cast<std::int64_t>(draw.below(8))};
      const Config config =
          resolve(parse_options(Command::kSft, words), testing_models::tied_qwen2(), launch);
      ++accepted;
      ASSERT_EQ(config.mesh.ranks(), launch.ranks);
      ASSERT_GE(config.row_length, 1);
    } catch (const base::UserError&) {
    } catch (const base::SystemError&) {
    }
  }
  EXPECT_GT(accepted, 20U);
}

TEST(Fuzz, OptionFilesGiveOptionsOrProblems) {
  const std::vector<std::string> seeds = {
      "ENV:\n  NPROC_PER_NODE: 2\nmodel: m\ndataset:\n  - a\n  - b # c\nlora_rank: 8\n"
      "columns: {a: b}\nlr_scheduler_kwargs:\n  min_lr: 1e-6\nsystem: |\n  two\n  lines\n",
      R"({"model": "m", "dataset": ["a", "b"], "columns": {"a": "b"}, "ENV": {"X": "1"}, "seed": 4})"};
  for (std::uint64_t run = 0; run < 3000; ++run) {
    Draw draw(2000000 + run);
    const bool json = run % 2 == 1;
    const std::string text = mutate(seeds[run % 2], draw);
    SCOPED_TRACE(testing::Message() << "run " << run);
    std::vector<GivenOption> given;
    std::vector<std::pair<std::string, std::string>> environment;
    std::vector<base::Problem> problems;
    ASSERT_NO_THROW(parse_option_text(text, json, "f", given, environment, problems));
    for (const base::Problem& problem : problems) {
      ASSERT_EQ(problem.line().find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace longhaul::config
