// Options of the optimizer and its schedule.
#include "config/option_bind.h"
#include "config/option_rows.h"

namespace longhaul::config {
namespace {

template <auto Member>
OptionSpec training_row(OptionSpec spec) {
  spec.group = OptionGroup::kTraining;
  spec.commands |= kTrainCommands;
  return bind<&Config::train, Member>(std::move(spec));
}

std::vector<OptionSpec> amount_rows() {
  return {
      training_row<&TrainOptions::per_device_train_batch_size>(
          {.name = "per_device_train_batch_size",
           .type = OptionType::kInteger,
           .default_text = "1",
           .limits = {1, 65536},
           .help = "Sequences per micro-batch of one data-parallel group (the ranks of a Ulysses "
                   "group share every sequence)"}),
      training_row<&TrainOptions::per_device_eval_batch_size>({.name = "per_device_eval_batch_size",
                                                               .type = OptionType::kInteger,
                                                               .default_text = "1",
                                                               .limits = {1, 65536},
                                                               .help = "The same for evaluation"}),
      training_row<&TrainOptions::gradient_accumulation_steps>(
          {.name = "gradient_accumulation_steps",
           .type = OptionType::kInteger,
           .default_text = "smallest that reaches 16 sequences per step",
           .limits = {1, 1000000},
           .help = "Micro-batches per optimizer step"}),
      training_row<&TrainOptions::num_train_epochs>({.name = "num_train_epochs",
                                                     .type = OptionType::kReal,
                                                     .default_text = "3",
                                                     .limits = {0, 1e6, true},
                                                     .help = "Passes over the data set"}),
      training_row<&TrainOptions::max_steps>(
          {.name = "max_steps",
           .type = OptionType::kInteger,
           .default_text = "-1",
           .limits = {-1, kLargestCount},
           .help = "Steps to train; above 0 it replaces num_train_epochs"}),
      training_row<&TrainOptions::seed>(
          {.name = "seed",
           .type = OptionType::kInteger,
           .default_text = "42",
           .limits = {0, kLargestSeed},
           .help = "Seed of initial LoRA weights, dropout and sampling",
           .commands = bit(Command::kInfer)}),
  };
}

std::vector<OptionSpec> rate_rows() {
  return {
      training_row<&TrainOptions::learning_rate>({.name = "learning_rate",
                                                  .type = OptionType::kReal,
                                                  .default_text = "1e-4 for lora, 1e-5 for full",
                                                  .limits = {0, 1000},
                                                  .help = "Highest learning rate of the schedule"}),
      training_row<&TrainOptions::lr_scheduler_type>(
          {.name = "lr_scheduler_type",
           .type = OptionType::kChoice,
           .default_text = "cosine",
           .choices = {"linear", "cosine", "constant", "constant_with_warmup",
                       "cosine_with_min_lr"},
           .help = "How the learning rate falls after the warm-up"}),
      training_row<&TrainOptions::lr_scheduler_kwargs>(
          {.name = "lr_scheduler_kwargs",
           .type = OptionType::kRealMap,
           .default_text = "{}",
           .help = "JSON object: num_cycles of both cosines; min_lr or min_lr_rate of "
                   "cosine_with_min_lr"}),
      training_row<&TrainOptions::warmup_ratio>(
          {.name = "warmup_ratio",
           .type = OptionType::kReal,
           .default_text = "0",
           .limits = {0, 1},
           .help = "Share of all steps over which the rate rises"}),
      training_row<&TrainOptions::warmup_steps>(
          {.name = "warmup_steps",
           .type = OptionType::kInteger,
           .default_text = "0",
           .limits = {0, kLargestCount},
           .help = "Steps over which the rate rises; above 0 it replaces "
                   "warmup_ratio"}),
  };
}

std::vector<OptionSpec> adam_rows() {
  return {
      training_row<&TrainOptions::optim>({.name = "optim",
                                          .type = OptionType::kChoice,
                                          .default_text = "adamw_torch_fused",
                                          .choices = {"adamw_torch", "adamw_torch_fused"},
                                          .help = "Optimizer; both names are the same AdamW"}),
      training_row<&TrainOptions::optimizer_state_dtype>(
          {.name = "optimizer_state_dtype",
           .type = OptionType::kChoice,
           .default_text = "float32",
           .choices = {"float32", "bfloat16"},
           .help = "Number type of AdamW's two moments; bfloat16 takes 4 bytes per trained "
                   "parameter instead of 8 and rounds stochastically (the weights stay float32)",
           .commands = bit(Command::kBench)}),
      training_row<&TrainOptions::weight_decay>(
          {.name = "weight_decay",
           .type = OptionType::kReal,
           .default_text = "0.1",
           .limits = {0, 100},
           .help = "Decoupled decay of trained matrices, not of biases "
                   "and norms"}),
      training_row<&TrainOptions::adam_beta1>({.name = "adam_beta1",
                                               .type = OptionType::kReal,
                                               .default_text = "0.9",
                                               .limits = {0, 1, false, true},
                                               .help = "Decay of the first moment"}),
      training_row<&TrainOptions::adam_beta2>({.name = "adam_beta2",
                                               .type = OptionType::kReal,
                                               .default_text = "0.95",
                                               .limits = {0, 1, false, true},
                                               .help = "Decay of the second moment"}),
      training_row<&TrainOptions::adam_epsilon>({.name = "adam_epsilon",
                                                 .type = OptionType::kReal,
                                                 .default_text = "1e-8",
                                                 .limits = {0, 1, true},
                                                 .help = "Added to the root of the second moment"}),
      training_row<&TrainOptions::max_grad_norm>(
          {.name = "max_grad_norm",
           .type = OptionType::kReal,
           .default_text = "1",
           .limits = {0, 1e9},
           .help = "Gradients are scaled down to this norm; 0 is off"}),
      training_row<&TrainOptions::neftune_noise_alpha>(
          {.name = "neftune_noise_alpha",
           .type = OptionType::kReal,
           .default_text = "off",
           .limits = {0, 1000},
           .help = "Strength of NEFTune's noise on embeddings"}),
  };
}

}  // namespace

std::vector<OptionSpec> training_rows() {
  std::vector<OptionSpec> rows;
  for (const auto& part : {amount_rows(), rate_rows(), adam_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace longhaul::config
