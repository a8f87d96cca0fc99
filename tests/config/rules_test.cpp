#include "config/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/options.h"

namespace longhaul::config {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string faults(Words words, Command command = Command::kSft, bool with_inputs = true) {
  if (with_inputs) {
    words.insert(words.end(), {"--model", "m", "--dataset", "d.jsonl"});
  }
  ParsedOptions parsed = parse_options(command, words);
  std::vector<base::Problem> problems = parsed.problems;
  check_option_rules(parsed.config, problems);
  std::string text;
  for (const base::Problem& problem : problems) {
    text += problem.line() + "\n";
  }
  return text;
}

std::string device_faults(const Words& words, base::Dtype dtype, std::int64_t gpus = 0,
                          Command command = Command::kSft) {
  ParsedOptions parsed = parse_options(command, words);
  EXPECT_TRUE(parsed.problems.empty());
  parsed.config.launch.usable_gpus = gpus;
  std::vector<base::Problem> problems;
  check_device_rules(parsed.config, dtype, problems);
  std::string text;
  for (const base::Problem& problem : problems) {
    text += problem.line() + "\n";
  }
  return text;
}

TEST(Rules, RequiredOptions) {
  EXPECT_EQ(faults({}), "");
  EXPECT_THAT(faults({}, Command::kSft, false), HasSubstr("--model: missing"));
  EXPECT_THAT(faults({}, Command::kSft, false), HasSubstr("--dataset: missing"));
  EXPECT_EQ(faults({"--model", "m"}, Command::kPlan, false), "");
  EXPECT_EQ(faults({"--model", "m", "--tokenize", "t.txt"}, Command::kData, false), "");
  EXPECT_THAT(faults({"--model", "m"}, Command::kData, false), HasSubstr("--dataset: missing"));
  EXPECT_EQ(faults({"--adapters", "a"}, Command::kInfer, false), "");
  EXPECT_EQ(faults({"--model", "", "--dataset", ""}, Command::kSft, false),
            "--model: is empty (expected text)\n"
            "--dataset: is empty (expected one or more words)\n");
  EXPECT_THAT(faults({}, Command::kInfer, false),
              HasSubstr("--model: missing, and so is --adapters"));
}

TEST(Rules, OptimizerStatesAreFloat32OrBfloat16) {
  for (const std::string dtype : {"float32", "bfloat16"}) {
    EXPECT_EQ(faults({"--optimizer_state_dtype", dtype}), "");
    EXPECT_EQ(faults({"--optimizer_state_dtype", dtype, "--train_type", "full"}), "");
  }
  for (const std::string other : {"float16", "bf16", "8bit"}) {
    EXPECT_EQ(faults({"--optimizer_state_dtype", other}),
              "--optimizer_state_dtype: not one of the accepted values (got " + other +
                  ", expected float32 | bfloat16)\n");
  }
}

TEST(Rules, ShardsFrozenWeightsOnly) {
  EXPECT_EQ(faults({"--fsdp", "fsdp2"}), "");
  EXPECT_EQ(faults({"--deepspeed", "zero3"}), "");
  EXPECT_EQ(faults({"--deepspeed", "zero0"}), "");
  EXPECT_EQ(faults({"--deepspeed", "zero0", "--train_type", "full"}), "");
  for (const std::string other : {"zero1", "zero2", "zero3_offload", "ds.json", "zero", "0"}) {
    EXPECT_EQ(faults({"--deepspeed", other}),
              "--deepspeed: not available yet (got " + other + ", expected zero0 | zero3)\n");
  }
  EXPECT_EQ(faults({"--fsdp", "fsdp"}), "--fsdp: not available yet (got fsdp, expected fsdp2)\n");
  EXPECT_THAT(faults({"--fsdp", "fsdp2", "--train_type", "full"}),
              HasSubstr("--fsdp: not available yet with --train_type full (got fsdp2)"));
  EXPECT_THAT(faults({"--deepspeed", "zero3", "--train_type", "full"}),
              HasSubstr("--deepspeed: not available yet with --train_type full (got zero3)"));
  EXPECT_THAT(faults({"--deepspeed", "zero3", "--fsdp", "fsdp2"}),
              HasSubstr("--fsdp: --deepspeed zero3 asks for the same"));
}

TEST(Rules, ExportMergesAnAdapter) {
  EXPECT_EQ(faults({"--adapters", "a", "--merge_lora", "true"}, Command::kExport, false), "");
  EXPECT_THAT(faults({"--adapters", "a"}, Command::kExport, false), HasSubstr("nothing to export"));
  EXPECT_THAT(faults({"--model", "m", "--merge_lora"}, Command::kExport, false),
              HasSubstr("--adapters: missing"));
}

TEST(Rules, OptionsOfTheOtherTuningTypeAreRefused) {
  EXPECT_THAT(faults({"--train_type", "full", "--lora_rank", "8"}),
              HasSubstr("--lora_rank: has no meaning with --train_type full (got 8)"));
  EXPECT_THAT(faults({"--train_type", "full", "--adapters", "a"}), HasSubstr("--adapters"));
  EXPECT_THAT(faults({"--freeze_parameters", "model.layers.0"}),
              HasSubstr("--freeze_parameters: has no meaning with --train_type lora"));
  EXPECT_EQ(faults({"--train_type", "full", "--freeze_parameters_ratio", "0.5"}), "");
  EXPECT_THAT(faults({"--train_type", "lora", "--galore", "true"}),
              HasSubstr("--galore: cannot be used with --train_type lora"));
}

TEST(Rules, DataOptionsThatContradictEachOther) {
  EXPECT_THAT(faults({"--truncation_strategy", "split"}),
              HasSubstr("only plain text can be cut up"));
  EXPECT_EQ(faults({"--truncation_strategy", "split"}, Command::kPt), "");
  EXPECT_THAT(faults({"--packing_length", "99"}),
              HasSubstr("--packing_length: needs --packing true (got 99)"));
  EXPECT_THAT(faults({"--packing_strategy", "binpack"}),
              HasSubstr("--packing_strategy: needs --packing true (got binpack)"));
  EXPECT_EQ(faults({"--packing_strategy", "sequential", "--packing", "true"}), "");
  EXPECT_THAT(faults({"--val_dataset", "v", "--split_dataset_ratio", "0.1"}),
              HasSubstr("--split_dataset_ratio: --val_dataset is given, too"));
  EXPECT_THAT(faults({"--system", "x"}, Command::kPt),
              HasSubstr("plain text has no system message"));
}

TEST(Rules, EvaluationNeedsData) {
  EXPECT_THAT(faults({"--eval_strategy", "steps"}), HasSubstr("there is nothing to evaluate on"));
  EXPECT_THAT(faults({"--eval_on_start", "true"}), HasSubstr("there is nothing to evaluate on"));
  EXPECT_EQ(faults({"--eval_strategy", "no"}), "");
  EXPECT_EQ(faults({"--eval_on_start", "true", "--split_dataset_ratio", "0.1"}), "");
}

TEST(Rules, ScheduleArguments) {
  const Words min_lr = {"--lr_scheduler_type", "cosine_with_min_lr", "--lr_scheduler_kwargs"};
  const auto with = [&](const std::string& json) {
    Words words = min_lr;
    words.push_back(json);
    return faults(words);
  };
  EXPECT_EQ(with(R"({"min_lr": 1e-6})"), "");
  EXPECT_EQ(with(R"({"min_lr_rate": 0.1})"), "");
  EXPECT_THAT(with(R"({"min_lr_rate": 1.1})"), HasSubstr("takes one lowest rate"));
  EXPECT_THAT(with(R"({"min_lr": 1e-6, "min_lr_rate": 0.1})"), HasSubstr("takes one lowest rate"));
  EXPECT_THAT(with("{}"), HasSubstr("takes one lowest rate"));
  EXPECT_THAT(faults({"--lr_scheduler_type", "cosine_with_min_lr"}),
              HasSubstr("takes one lowest rate"));
  EXPECT_EQ(with(R"({"min_lr": 1e-6, "num_cycles": 1.5})"), "");
  EXPECT_EQ(faults({"--lr_scheduler_kwargs", R"({"num_cycles": 2})"}), "");
  EXPECT_THAT(faults({"--lr_scheduler_kwargs", R"({"min_lr": 1e-6})"}),
              HasSubstr("cosine takes num_cycles"));
  EXPECT_THAT(faults({"--lr_scheduler_kwargs", R"({"num_cycles": -1})"}),
              HasSubstr("cosine takes num_cycles"));
  EXPECT_THAT(
      faults({"--lr_scheduler_type", "linear", "--lr_scheduler_kwargs", R"({"num_cycles": 2})"}),
      HasSubstr("only cosine and cosine_with_min_lr take arguments"));
  EXPECT_THAT(faults({"--max_steps", "0"}), HasSubstr("no step to train"));
  EXPECT_THAT(faults({"--report_to", "none", "tensorboard"}), HasSubstr("none beside something"));
}

TEST(Rules, GradientCheckpointingAgainstThePolicy) {
  EXPECT_EQ(faults({"--gradient_checkpointing", "true", "--activation_policy", "C"}), "");
  EXPECT_EQ(faults({"--gradient_checkpointing", "false"}), "");
  EXPECT_EQ(faults({"--gradient_checkpointing", "false", "--activation_policy", "keep"}), "");
  EXPECT_THAT(
      faults({"--gradient_checkpointing", "false", "--activation_policy", "D"}),
      HasSubstr("--gradient_checkpointing: --activation_policy D drops activations (got false)"));
  EXPECT_THAT(faults({"--activation_policy", "E"}),
              HasSubstr("--activation_policy: not a policy (got E"));
  EXPECT_EQ(faults({"--activation_policy", "D2"}), "");
}

TEST(Rules, AttentionOptionsThatContradictEachOther) {
  EXPECT_THAT(faults({"--use_flash_attn", "true", "--attn_impl", "eager"}),
              HasSubstr("is not fused"));
  EXPECT_THAT(faults({"--use_flash_attn", "false", "--attn_impl", "flash_attention_2"}),
              HasSubstr("asks for it"));
  EXPECT_EQ(faults({"--use_flash_attn", "true", "--attn_impl", "sdpa"}), "");
}

TEST(Rules, GpuOnlyThingsOnCpuRanks) {
  const auto bf16 = base::Dtype::kBFloat16;
  EXPECT_THAT(device_faults({"--attn_impl", "cudnn"}, bf16),
              HasSubstr("--attn_impl: runs on GPUs only"));
  EXPECT_THAT(device_faults({"--attn_impl", "flash_attention_2", "--device", "cpu"}, bf16, 8),
              HasSubstr("runs on GPUs only"));
  for (const char* kernel : {"auto", "sdpa"}) {
    EXPECT_EQ(device_faults({"--use_flash_attn", "true", "--attn_impl", kernel}, bf16), "");
  }
  EXPECT_THAT(device_faults({"--activation_policy", "D+offload"}, bf16),
              HasSubstr("the ranks are CPU ranks"));
  for (const Words& device :
       {Words{"--plan_device", "h200"}, Words{"--gpu_memory_limit", "40e9"}}) {
    Words words = {"--activation_policy", "D+offload"};
    words.insert(words.end(), device.begin(), device.end());
    EXPECT_EQ(device_faults(words, bf16, 0, Command::kPlan), "");
  }
}

TEST(Rules, TheCpuHasOneAttentionKernel) {
  const auto bf16 = base::Dtype::kBFloat16;
  EXPECT_EQ(device_faults({"--attn_impl", "eager"}, bf16),
            "--attn_impl: not available: the CPU has one kernel, libtorch's fused one (sdpa) (got "
            "eager). Use auto or sdpa\n");
  EXPECT_EQ(device_faults({"--use_flash_attn", "false"}, bf16),
            "--use_flash_attn: the CPU has one kernel, libtorch's fused one (sdpa) (got false). "
            "Leave it out\n");
  EXPECT_THAT(
      device_faults({"--use_flash_attn", "false", "--device", "cpu"}, bf16, 1, Command::kInfer),
      HasSubstr("--use_flash_attn"));
}

TEST(Rules, Float16NeedsAnotherTypeOnTheCpu) {
  const auto fp16 = base::Dtype::kFloat16;
  EXPECT_THAT(device_faults({}, fp16), HasSubstr("the model is stored in float16"));
  EXPECT_EQ(device_faults({"--torch_dtype", "float32"}, fp16), "");
  EXPECT_EQ(device_faults({"--torch_dtype", "bfloat16"}, fp16), "");
  EXPECT_THAT(device_faults({"--torch_dtype", "float16"}, base::Dtype::kFloat32),
              HasSubstr("--torch_dtype: float16 computes on GPUs only (got float16"));
}

TEST(Rules, WhatGpuRanksDoNotDoYetIsRefused) {
  const auto bf16 = base::Dtype::kBFloat16;
  EXPECT_EQ(device_faults({"--use_flash_attn", "true", "--attn_impl", "sdpa"}, bf16, 1), "");
  for (const char* kernel : {"cudnn", "flash_attn", "flash_attention_2"}) {
    EXPECT_EQ(device_faults({"--attn_impl", kernel}, bf16, 2), "");
    EXPECT_THAT(device_faults({"--attn_impl", kernel}, base::Dtype::kFloat32, 1),
                HasSubstr("no float32 kernel"));
  }
  EXPECT_THAT(device_faults({"--attn_impl", "eager"}, bf16, 1), HasSubstr("fused kernels only"));
  EXPECT_THAT(device_faults({"--attn_impl", "cudnn", "--deterministic", "true"}, bf16, 1),
              HasSubstr("adds gradients in any order"));
  EXPECT_EQ(device_faults({"--attn_impl", "flash_attn", "--deterministic", "true"}, bf16, 1), "");
  EXPECT_THAT(device_faults({"--attn_impl", "cudnn"}, bf16, 1, Command::kInfer),
              HasSubstr("not available for infer"));
  EXPECT_THAT(device_faults({"--use_flash_attn", "false"}, bf16, 1), HasSubstr("--use_flash_attn"));
  EXPECT_THAT(device_faults({}, base::Dtype::kFloat16, 1),
              HasSubstr("float16 is not available yet on GPUs"));
  for (const Command command : {Command::kSft, Command::kPlan}) {
    EXPECT_EQ(device_faults({"--activation_policy", "D+offload"}, bf16, 1, command), "");
  }
}

}  // namespace
}  // namespace longhaul::config
