#include "config/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "config/test_models.h"

namespace longhaul::config {
namespace {

using testing::HasSubstr;
using testing_models::tied_qwen2;
using Words = std::vector<std::string>;

ParsedOptions parsed(Words words, Command command = Command::kSft) {
  words.insert(words.end(), {"--model", "m", "--dataset", "d.jsonl"});
  return parse_options(command, words);
}

Config resolved(const Words& words, const LaunchInfo& launch = {}) {
  return resolve(parsed(words), tied_qwen2(), launch);
}

std::string error_of(const Words& words, const LaunchInfo& launch = {}) {
  try {
    resolved(words, launch);
  } catch (const base::UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Resolve, DecidesWhatWasNotGiven) {
  const Config config = resolved({}, {.ranks = 2, .local_ranks = 2});
  EXPECT_EQ(config.mesh.dp, 2);
  EXPECT_EQ(config.max_length, 128);
  EXPECT_EQ(config.data.max_length, 128);
  EXPECT_EQ(config.learning_rate, 1e-4);
  EXPECT_EQ(config.tuning.lora_rank, 8);
  EXPECT_EQ(config.tuning.lora_alpha, 32);
  EXPECT_EQ(config.tuning.lora_dropout, 0.05);
  EXPECT_EQ(config.model.torch_dtype, base::Dtype::kFloat32);
  EXPECT_EQ(config.output.eval_strategy, Interval::kNo);
  EXPECT_EQ(resolved({"--train_type", "full"}).learning_rate, 1e-5);
  EXPECT_FALSE(resolved({"--train_type", "full"}).tuning.lora_rank.has_value());
  EXPECT_FALSE(resolved({"--adapters", "a"}).tuning.lora_rank.has_value());
}

TEST(Resolve, EvaluationFollowsSavingWhenThereIsData) {
  const Config config =
      resolved({"--split_dataset_ratio", "0.1", "--save_strategy", "epoch", "--save_steps", "30"});
  EXPECT_EQ(config.output.eval_strategy, Interval::kEpoch);
  EXPECT_EQ(config.output.eval_steps, 30);
}

TEST(Resolve, AccumulationReachesSixteenSequencesPerStep) {
  const LaunchInfo three{.ranks = 3, .local_ranks = 3};
  EXPECT_EQ(resolved({}).accumulation, 16);
  EXPECT_EQ(resolved({}, three).accumulation, 6);
  EXPECT_EQ(resolved({}, three).global_batch(), 18);
  EXPECT_EQ(resolved({"--ulysses", "true"}, three).accumulation, 16);
  EXPECT_EQ(resolved({"--per_device_train_batch_size", "20"}).accumulation, 1);
  EXPECT_EQ(resolved({"--gradient_accumulation_steps", "2"}, three).global_batch(), 6);
}

TEST(Resolve, ListsOptionModelAndMeshFaultsTogether) {
  const std::string error =
      error_of({"--lora_rank", "0", "--ulysses_seq_len", "5", "--target_modules", "wq",
                "--activation_policy", "3xA", "--packing_length", "3"},
               {.ranks = 2, .local_ranks = 2});
  EXPECT_THAT(error, HasSubstr("--lora_rank: out of range"));
  EXPECT_THAT(error, HasSubstr("--target_modules: matches no linear layer"));
  EXPECT_THAT(error, HasSubstr("(3 layers), expected 2 layers"));
  EXPECT_THAT(error, HasSubstr("--packing_length: needs --packing true"));
}

TEST(Resolve, FreezePatternsAreCheckedAgainstTheModel) {
  EXPECT_THAT(error_of({"--train_type", "full", "--freeze_parameters", "transformer.h"}),
              HasSubstr("--freeze_parameters: matches no parameter"));
  EXPECT_THAT(error_of({"--modules_to_save", "score"}), HasSubstr("--modules_to_save"));
}

TEST(Resolve, CudaWithoutAGpuIsTheMachinesFault) {
  EXPECT_THROW(resolved({"--device", "cuda"}), base::SystemError);
  EXPECT_THROW(resolved({"--device", "cuda", "--lora_rank", "0"}), base::UserError);
  EXPECT_NO_THROW(resolve(parsed({"--device", "cuda"}, Command::kPlan), tied_qwen2(), {}));
}

TEST(Resolve, CommandsThatComputeTakeAGpuThatIsHere) {
  for (const Command command : {Command::kSft, Command::kInfer}) {
    const auto computes_on_cpu = [&](const char* device, std::int64_t gpus) {
      Words words{"--model", "m", "--device", device};
      if (command == Command::kSft) {
        words.insert(words.end(), {"--dataset", "d.jsonl"});
      }
      return resolve(parse_options(command, words), tied_qwen2(), {.usable_gpus = gpus}).on_cpu();
    };
    EXPECT_FALSE(computes_on_cpu("auto", 2));
    EXPECT_FALSE(computes_on_cpu("cuda", 2));
    EXPECT_TRUE(computes_on_cpu("cpu", 2));
    EXPECT_TRUE(computes_on_cpu("auto", 0));
    EXPECT_THROW(computes_on_cpu("cuda", 0), base::SystemError);
  }
}

TEST(Resolve, NotesThatOneRankShardsNothing) {
  const Config alone = resolve(parsed({"--fsdp", "fsdp2"}), tied_qwen2(), {});
  EXPECT_THAT(alone.notes,
              testing::ElementsAre("--fsdp fsdp2: no effect on one rank, which holds all weights"));
  const LaunchInfo two{.ranks = 2};
  EXPECT_TRUE(resolve(parsed({"--deepspeed", "zero3"}), tied_qwen2(), two).notes.empty());
}

TEST(Resolve, NotesOptionsWithoutEffectAndUnknownModelKeys) {
  ModelConfig model = tied_qwen2();
  model.unknown_keys = {"config.json:3: foo"};
  const Config config = resolve(parsed({"--ddp_timeout", "60", "--lazy_tokenize"}), model, {});
  EXPECT_THAT(config.notes,
              testing::ElementsAre("No effect in this program: --ddp_timeout --lazy_tokenize",
                                   "config.json:3: foo: unknown key, not used"));
}

TEST(Resolve, GradientCheckpointingFalseKeepsEverything) {
  EXPECT_EQ(resolved({"--gradient_checkpointing", "false"}).memory.activation_policy, "A");
  EXPECT_EQ(resolved({"--gradient_checkpointing", "true"}).memory.activation_policy, "auto");
}

TEST(TuningSpec, CarriesLoraWithResolvedTargets) {
  const Config config = resolved({"--lora_rank", "4", "--use_rslora", "--target_modules", "q_proj",
                                  "--modules_to_save", "lm_head"});
  const TuningSpec spec = tuning_spec(config, tied_qwen2());
  ASSERT_TRUE(spec.lora.has_value());
  EXPECT_EQ(spec.lora->rank, 4);
  EXPECT_TRUE(spec.lora->rslora);
  EXPECT_EQ(spec.lora->target_modules.size(), 2U);
  EXPECT_EQ(spec.lora->modules_to_save, (Words{"lm_head"}));
  EXPECT_TRUE(tuning_spec(resolved({"--train_type", "full"}), tied_qwen2()).full);
}

TEST(LoadConfig, FaultsOfModelAndOptionsAreListedTogether) {
  const std::string folder = testing::TempDir() + "/load_config_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({"model_type": "mamba"})";
  const Words words = {"--model", folder, "--dataset", "d", "--lora_rank", "x"};
  try {
    load_config(parse_options(Command::kSft, words), {});
    FAIL();
  } catch (const base::UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--lora_rank: not an integer (got x"));
    EXPECT_THAT(error.what(), HasSubstr("model_type: model family is not available"));
    EXPECT_THAT(error.what(), HasSubstr("hidden_size: missing"));
  }
  std::filesystem::remove_all(folder);
}

TEST(LoadConfig, HubIdsAreRefusedByName) {
  const auto error = [](const std::string& model) {
    try {
      load_config(parse_options(Command::kPlan, Words{"--model", model}), {});
    } catch (const base::UserError& fault) {
      return std::string(fault.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error("Qwen/Qwen2.5-7B"), HasSubstr("Downloading from a hub is not available yet"));
  EXPECT_THAT(error("/no/such/model"), HasSubstr("--model: no such folder (got /no/such/model"));
  EXPECT_THAT(error("/no/such/model"), testing::Not(HasSubstr("hub")));
}

TEST(LoadConfig, CommandsThatNeedNoModelReadNone) {
  const Config config = load_config(
      parse_options(Command::kData, Words{"--model", "nowhere", "--tokenize", "t"}), {});
  EXPECT_EQ(config.data_command.tokenize, "t");
  EXPECT_NO_THROW(load_config(parse_options(Command::kInfer, Words{"--adapters", "nowhere"}), {}));
}

}  // namespace
}  // namespace longhaul::config
