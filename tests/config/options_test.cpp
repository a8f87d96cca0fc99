// The option table as a whole: every row reaches its own member of Config, nothing is listed twice.
#include "config/options.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "config/option_value.h"

namespace longhaul::config {
namespace {

/// A value that differs from the default, in the row's own syntax.
std::string other_value(const OptionSpec& spec) {
  Config config;
  config.command = Command::kSft;
  const base::OrderedJson now = spec.get == nullptr ? base::OrderedJson() : spec.get(config, spec);
  switch (spec.type) {
    case OptionType::kText:
    case OptionType::kTextList:
      return "some-text";
    case OptionType::kInteger:
    case OptionType::kIntegerList:
    case OptionType::kBytes:
      return now == 3 ? "4" : "3";
    case OptionType::kReal:
      return now == 0.25 ? "0.5" : "0.25";
    case OptionType::kBoolean:
      return now == true ? "false" : "true";
    case OptionType::kChoice:
    case OptionType::kChoiceList:
      return std::string(now == spec.choices.back() ? spec.choices.front() : spec.choices.back());
    case OptionType::kTextMap:
      return R"({"a": "b"})";
    case OptionType::kRealMap:
    case OptionType::kJson:
      return R"({"a": 1.5})";
  }
  return {};
}

TEST(OptionTable, NamesAndAliasesAreUnique) {
  std::set<std::string_view> names;
  for (const OptionSpec& spec : option_table()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    for (const std::string_view alias : spec.aliases) {
      EXPECT_TRUE(names.insert(alias).second) << alias;
    }
  }
}

TEST(OptionTable, EveryRowIsComplete) {
  for (const OptionSpec& spec : option_table()) {
    SCOPED_TRACE(std::string(spec.name));
    EXPECT_FALSE(spec.help.empty());
    EXPECT_FALSE(spec.default_text.empty());
    EXPECT_NE(spec.commands, 0U);
    const bool is_choice = spec.type == OptionType::kChoice || spec.type == OptionType::kChoiceList;
    EXPECT_EQ(is_choice, !spec.choices.empty());
    const bool is_number = spec.type == OptionType::kInteger ||
                           spec.type == OptionType::kIntegerList ||
                           spec.type == OptionType::kReal || spec.type == OptionType::kBytes;
    EXPECT_EQ(is_number, spec.limits.most > spec.limits.least);
    EXPECT_EQ(spec.set == nullptr, spec.get == nullptr);
    if (spec.state == OptionState::kWorks) {
      EXPECT_NE(spec.set, nullptr) << "a working option must reach the Config";
    }
  }
}

TEST(OptionTable, EveryRowChangesItsOwnMemberAndNoOther) {
  for (const OptionSpec& spec : option_table()) {
    if (spec.set == nullptr || spec.choices.size() == 1) {
      continue;
    }
    SCOPED_TRACE(std::string(spec.name));
    Config before;
    Config after;
    std::string fault;
    const auto value = check_value(spec, {other_value(spec)}, fault);
    ASSERT_TRUE(value.has_value()) << fault;
    spec.set(after, *value);
    for (const OptionSpec& other : option_table()) {
      if (other.get != nullptr) {
        EXPECT_EQ(other.get(before, other) != other.get(after, other), other.name == spec.name)
            << other.name;
      }
    }
  }
}

TEST(OptionTable, ChoicesStandInTheOrderOfTheirEnumerators) {
  const std::map<std::string, std::vector<std::string_view>> expected = {
      {"device", {"auto", "cuda", "cpu"}},
      {"truncation_strategy", {"delete", "left", "right", "split"}},
      {"packing_strategy", {"binpack", "sequential"}},
      {"loss_scale", {"default", "last_round", "all"}},
      {"save_strategy", {"no", "steps", "epoch"}},
      {"eval_strategy", {"no", "steps", "epoch"}},
      {"lr_scheduler_type",
       {"linear", "cosine", "constant", "constant_with_warmup", "cosine_with_min_lr"}}};
  for (const auto& [name, choices] : expected) {
    const OptionSpec* spec = find_option(name);
    ASSERT_NE(spec, nullptr);
    EXPECT_EQ(spec->choices, choices) << name;
  }
  static_assert(static_cast<int>(DeviceChoice::kCpu) == 2);
  static_assert(static_cast<int>(TruncationStrategy::kSplit) == 3);
  static_assert(static_cast<int>(PackingStrategy::kSequential) == 1);
  static_assert(static_cast<int>(LossScale::kAll) == 2);
  static_assert(static_cast<int>(Interval::kEpoch) == 2);
  static_assert(static_cast<int>(Schedule::kConstantWithWarmup) == 3);
  static_assert(static_cast<int>(Schedule::kCosineWithMinLr) == 4);
}

/// What ms-swift's users give to sft, so that no option gets lost.
constexpr std::string_view kTrainingOptions = R"(
model use_hf torch_dtype device attn_impl use_flash_attn max_model_len rope_scaling template system use_chat_template
train_type tuner_type adapters lora_rank lora_alpha lora_dropout lora_bias use_rslora target_modules modules_to_save
freeze_parameters freeze_parameters_regex freeze_parameters_ratio trainable_parameters trainable_parameters_regex
dataset custom_dataset_info val_dataset split_dataset_ratio max_length truncation_strategy packing packing_length
packing_strategy padding_free dataset_shuffle train_dataloader_shuffle data_seed columns strict dataset_num_proc
streaming loss_scale cache_dir per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps
num_train_epochs max_steps learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_ratio warmup_steps optim
weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm neftune_noise_alpha seed ulysses ulysses_seq_len
sequence_parallel_size ring_size deepspeed zero2_offload_optimizer fsdp galore use_galore galore_rank
galore_update_interval galore_update_proj_gap galore_scale galore_proj_type galore_target_modules activation_policy
gradient_checkpointing gpu_memory_limit host_memory_limit output_dir add_version create_checkpoint_symlink
logging_steps logging_first_step save_strategy save_steps save_total_limit save_only_model eval_strategy eval_steps
eval_on_start resume_from_checkpoint report_to deterministic dataloader_num_workers dataloader_pin_memory
dataloader_prefetch_factor lazy_tokenize load_from_cache_file packing_num_proc use_liger_kernel
gradient_checkpointing_kwargs ddp_backend ddp_timeout ddp_find_unused_parameters check_model)";

TEST(OptionTable, HasEveryOptionOfTheTrainingCommands) {
  std::istringstream names{std::string(kTrainingOptions)};
  std::string name;
  int count = 0;
  while (names >> name) {
    ++count;
    const OptionSpec* spec = find_option(name);
    ASSERT_NE(spec, nullptr) << name;
    for (const Command command : {Command::kSft, Command::kPt, Command::kPlan}) {
      EXPECT_TRUE(spec->taken_by(command)) << name;
    }
  }
  EXPECT_GT(count, 100);
}

TEST(OptionTable, NearestNameFindsSlipsOnly) {
  const std::vector<std::string_view> names = {"lora_rank", "lora_alpha", "dataset", "packing"};
  EXPECT_EQ(nearest_name("lora_rnk", names), "lora_rank");
  EXPECT_EQ(nearest_name("dateset", names), "dataset");
  EXPECT_EQ(nearest_name("pakcing", names), "packing");
  EXPECT_FALSE(nearest_name("temperature", names).has_value());
  EXPECT_FALSE(nearest_name(std::string(100000, 'a'), names).has_value());
}

TEST(OptionTable, JsonHoldsEveryOptionOfTheCommand) {
  Config config;
  config.command = Command::kExport;
  const base::OrderedJson values = options_json(config);
  EXPECT_TRUE(values.contains("merge_lora"));
  EXPECT_FALSE(values.contains("learning_rate"));
  config.command = Command::kSft;
  EXPECT_EQ(options_json(config)["lr_scheduler_type"], "cosine");
  EXPECT_TRUE(options_json(config)["max_length"].is_null());
}

TEST(Commands, RoundTripByName) {
  for (const std::string_view name : command_names()) {
    const auto command = find_command(name);
    ASSERT_TRUE(command.has_value());
    EXPECT_EQ(command_name(*command), name);
  }
  EXPECT_FALSE(find_command("train").has_value());
  EXPECT_FALSE(is_available(Command::kWebUi));
  EXPECT_TRUE(is_available(Command::kSft));
}

}  // namespace
}  // namespace longhaul::config
