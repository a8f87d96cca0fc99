// Options of the run folder: logging, checkpoints, evaluation.
#include "config/option_bind.h"
#include "config/option_rows.h"

namespace longhaul::config {
namespace {

template <auto Member>
OptionSpec output_row(OptionSpec spec) {
  spec.group = OptionGroup::kOutput;
  spec.commands |= kTrainCommands;
  return bind<&Config::output, Member>(std::move(spec));
}

std::vector<OptionSpec> folder_rows() {
  return {
      output_row<&OutputOptions::output_dir>(
          {.name = "output_dir",
           .default_text = "output/MODEL (export: CKPT-merged)",
           .help = "Folder that gets the run folders, or the merged model",
           .commands = bit(Command::kExport)}),
      output_row<&OutputOptions::add_version>(
          {.name = "add_version",
           .type = OptionType::kBoolean,
           .default_text = "true",
           .help = "Make a folder vK-DATE-TIME per run; false writes into "
                   "output_dir itself"}),
      output_row<&OutputOptions::create_checkpoint_symlink>({.name = "create_checkpoint_symlink",
                                                             .type = OptionType::kBoolean,
                                                             .default_text = "false",
                                                             .help = "Keep links best and last"}),
      output_row<&OutputOptions::resume_from_checkpoint>(
          {.name = "resume_from_checkpoint",
           .default_text = "unset",
           .help = "checkpoint-N or run folder to go on from"}),
      output_row<&OutputOptions::save_only_model>(
          {.name = "save_only_model",
           .type = OptionType::kBoolean,
           .default_text = "false",
           .help = "Checkpoints without optimizer state (cannot be "
                   "resumed)"}),
      output_row<&OutputOptions::save_total_limit>(
          {.name = "save_total_limit",
           .type = OptionType::kInteger,
           .default_text = "all",
           .limits = {1, kLargestCount},
           .help = "Checkpoints kept beside the best one"}),
  };
}

std::vector<OptionSpec> interval_rows() {
  const std::vector<std::string_view> intervals = {"no", "steps", "epoch"};
  return {
      output_row<&OutputOptions::logging_steps>({.name = "logging_steps",
                                                 .type = OptionType::kInteger,
                                                 .default_text = "5",
                                                 .limits = {1, kLargestCount},
                                                 .help = "Steps between log lines"}),
      output_row<&OutputOptions::logging_first_step>({.name = "logging_first_step",
                                                      .type = OptionType::kBoolean,
                                                      .default_text = "true",
                                                      .help = "Log step 1, too"}),
      output_row<&OutputOptions::save_strategy>(
          {.name = "save_strategy",
           .type = OptionType::kChoice,
           .default_text = "steps",
           .choices = intervals,
           .help = "When checkpoints are written (the last step always)"}),
      output_row<&OutputOptions::save_steps>({.name = "save_steps",
                                              .type = OptionType::kInteger,
                                              .default_text = "500",
                                              .limits = {1, kLargestCount},
                                              .help = "Steps between checkpoints"}),
      output_row<&OutputOptions::eval_strategy>(
          {.name = "eval_strategy",
           .aliases = {"evaluation_strategy"},
           .type = OptionType::kChoice,
           .default_text = "save_strategy; no without validation data",
           .choices = intervals,
           .help = "When the validation set is evaluated"}),
      output_row<&OutputOptions::eval_steps>({.name = "eval_steps",
                                              .type = OptionType::kInteger,
                                              .default_text = "save_steps",
                                              .limits = {1, kLargestCount},
                                              .help = "Steps between evaluations"}),
      output_row<&OutputOptions::eval_on_start>({.name = "eval_on_start",
                                                 .type = OptionType::kBoolean,
                                                 .default_text = "false",
                                                 .help = "Evaluate before the first step"}),
  };
}

}  // namespace

std::vector<OptionSpec> output_rows() {
  std::vector<OptionSpec> rows = folder_rows();
  const std::vector<OptionSpec> intervals = interval_rows();
  rows.insert(rows.end(), intervals.begin(), intervals.end());
  rows.push_back(
      output_row<&OutputOptions::report_to>({.name = "report_to",
                                             .type = OptionType::kChoiceList,
                                             .default_text = "tensorboard",
                                             .choices = {"tensorboard", "none"},
                                             .help = "Where curves go beside logging.jsonl"}));
  rows.push_back(
      output_row<&OutputOptions::deterministic>({.name = "deterministic",
                                                 .type = OptionType::kBoolean,
                                                 .default_text = "false",
                                                 .help = "Deterministic kernels everywhere",
                                                 .commands = bit(Command::kBench)}));
  return rows;
}

}  // namespace longhaul::config
