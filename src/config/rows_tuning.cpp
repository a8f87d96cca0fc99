// Options that say which parameters train.
#include "config/option_bind.h"
#include "config/option_rows.h"

namespace longhaul::config {
namespace {

template <auto Member>
OptionSpec tuning_row(OptionSpec spec) {
  spec.group = OptionGroup::kTuning;
  spec.commands |= kTrainCommands;
  return bind<&Config::tuning, Member>(std::move(spec));
}

std::vector<OptionSpec> lora_rows() {
  return {
      tuning_row<&TuningOptions::lora_rank>({.name = "lora_rank",
                                             .type = OptionType::kInteger,
                                             .default_text = "8 (bench: 16)",
                                             .limits = {1, 65536},
                                             .help = "Rank of the LoRA matrices",
                                             .commands = bit(Command::kBench)}),
      tuning_row<&TuningOptions::lora_alpha>({.name = "lora_alpha",
                                              .type = OptionType::kReal,
                                              .default_text = "32",
                                              .limits = {0, 1e6, true},
                                              .help = "LoRA output is scaled by alpha / rank"}),
      tuning_row<&TuningOptions::lora_dropout>({.name = "lora_dropout",
                                                .type = OptionType::kReal,
                                                .default_text = "0.05 (bench: 0)",
                                                .limits = {0, 1, false, true},
                                                .help = "Dropout on the input of the LoRA matrices",
                                                .commands = bit(Command::kBench)}),
      tuning_row<&TuningOptions::lora_bias>({.name = "lora_bias",
                                             .type = OptionType::kChoice,
                                             .default_text = "none",
                                             .choices = {"none"},
                                             .help = "Which biases train beside LoRA"}),
      tuning_row<&TuningOptions::use_rslora>({.name = "use_rslora",
                                              .type = OptionType::kBoolean,
                                              .default_text = "false",
                                              .help = "Scale by alpha / sqrt(rank) instead"}),
      tuning_row<&TuningOptions::target_modules>(
          {.name = "target_modules",
           .type = OptionType::kTextList,
           .default_text = "all-linear",
           .help = "Linear layers that get LoRA: all-linear (every one but lm_head), names, or one "
                   "regular expression over whole module paths"}),
      tuning_row<&TuningOptions::modules_to_save>(
          {.name = "modules_to_save",
           .type = OptionType::kTextList,
           .default_text = "none",
           .help =
               "Modules trained whole and saved with the adapter, such as embed_tokens lm_head"}),
  };
}

std::vector<OptionSpec> freeze_rows() {
  return {
      tuning_row<&TuningOptions::freeze_parameters>({.name = "freeze_parameters",
                                                     .type = OptionType::kTextList,
                                                     .default_text = "none",
                                                     .help =
                                                         "Full fine-tuning: prefixes of parameter "
                                                         "names that do not train"}),
      tuning_row<&TuningOptions::freeze_parameters_regex>(
          {.name = "freeze_parameters_regex",
           .default_text = "none",
           .help = "Full fine-tuning: regular expression of parameters that do not train"}),
      tuning_row<&TuningOptions::freeze_parameters_ratio>(
          {.name = "freeze_parameters_ratio",
           .type = OptionType::kReal,
           .default_text = "0",
           .limits = {0, 1},
           .help = "Full fine-tuning: share of all parameters, from the embedding upwards, that "
                   "does not train"}),
      tuning_row<&TuningOptions::trainable_parameters>(
          {.name = "trainable_parameters",
           .type = OptionType::kTextList,
           .default_text = "none",
           .help = "Full fine-tuning: prefixes that train in spite of the freeze options"}),
      tuning_row<&TuningOptions::trainable_parameters_regex>(
          {.name = "trainable_parameters_regex",
           .default_text = "none",
           .help =
               "Full fine-tuning: regular expression that trains in spite of the freeze options"}),
  };
}

}  // namespace

std::vector<OptionSpec> tuning_rows() {
  std::vector<OptionSpec> rows = {
      tuning_row<&TuningOptions::train_type>({.name = "train_type",
                                              .aliases = {"tuner_type"},
                                              .type = OptionType::kChoice,
                                              .default_text = "lora",
                                              .choices = {"lora", "full"},
                                              .help = "LoRA or full fine-tuning",
                                              .commands = bit(Command::kBench)}),
      tuning_row<&TuningOptions::adapters>(
          {.name = "adapters",
           .default_text = "none",
           .help = "Folder of a LoRA adapter to start from, to use or to merge",
           .commands = bit(Command::kInfer) | bit(Command::kExport)}),
  };
  for (const auto& part : {lora_rows(), freeze_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace longhaul::config
