// Options of single commands, and those that are accepted because they steer other implementations
// only.
#include "config/option_bind.h"
#include "config/option_rows.h"

namespace longhaul::config {
namespace {

template <auto Member>
OptionSpec infer(OptionSpec spec) {
  spec.group = OptionGroup::kInfer;
  spec.commands = bit(Command::kInfer);
  return bind<&Config::infer, Member>(std::move(spec));
}

template <auto Member>
OptionSpec export_row(OptionSpec spec) {
  spec.group = OptionGroup::kExport;
  spec.commands = bit(Command::kExport);
  return bind<&Config::export_model, Member>(std::move(spec));
}

template <auto Member>
OptionSpec data_command_row(OptionSpec spec) {
  spec.group = OptionGroup::kDataCommand;
  spec.commands = bit(Command::kData);
  return bind<&Config::data_command, Member>(std::move(spec));
}

std::vector<OptionSpec> infer_rows() {
  return {
      infer<&InferOptions::result_path>({.name = "result_path",
                                         .default_text = "CKPT/infer_result/TIME.jsonl",
                                         .help = "File for the answers to val_dataset"}),
      infer<&InferOptions::max_new_tokens>({.name = "max_new_tokens",
                                            .type = OptionType::kInteger,
                                            .default_text = "2048",
                                            .limits = {1, kLargestCount},
                                            .help = "Longest answer in tokens"}),
      infer<&InferOptions::temperature>({.name = "temperature",
                                         .type = OptionType::kReal,
                                         .default_text = "0",
                                         .limits = {0, 100},
                                         .help = "0 takes the likeliest token, above 0 samples"}),
      infer<&InferOptions::top_p>(
          {.name = "top_p",
           .type = OptionType::kReal,
           .default_text = "1",
           .limits = {0, 1, true},
           .help = "Sample from the likeliest tokens of this total probability"}),
      infer<&InferOptions::stream>({.name = "stream",
                                    .type = OptionType::kBoolean,
                                    .default_text = "true in a chat, false in a batch",
                                    .help = "Print answers while they are made"}),
  };
}

template <auto Member>
OptionSpec bench(OptionSpec spec) {
  spec.group = OptionGroup::kBench;
  spec.commands = bit(Command::kBench);
  return bind<&Config::bench, Member>(std::move(spec));
}

std::vector<OptionSpec> bench_rows() {
  return {
      bench<&BenchOptions::shape>(
          {.name = "shape",
           .default_text = "none",
           .help = "Model whose sizes are measured, such as qwen2.5-7b or llama3.1-8b; --model "
                   "takes those of a folder's config.json"}),
      bench<&BenchOptions::lengths>({.name = "lengths",
                                     .type = OptionType::kIntegerList,
                                     .default_text = "4096",
                                     .limits = {1, kLargestCount},
                                     .help = "Tokens of the rows, one after the other"}),
      bench<&BenchOptions::policies>(
          {.name = "policies",
           .type = OptionType::kTextList,
           .default_text = "the activation_policy",
           .help = "Activation policies, one after the other; train only"}),
      bench<&BenchOptions::steps>({.name = "bench_steps",
                                   .type = OptionType::kInteger,
                                   .default_text = "5 up to 64K tokens, 2 up to 128K, else 1",
                                   .limits = {1, kLargestCount},
                                   .help = "Measured repetitions; those that warm up come on top"}),
      bench<&BenchOptions::packing_mean>(
          {.name = "packing_mean",
           .type = OptionType::kInteger,
           .default_text = "unset",
           .limits = {1, kLargestCount},
           .help =
               "Mean length of the documents of a packed row (log-normal, sigma 0.8, always the "
               "same ones); unset: a row is one document"}),
      bench<&BenchOptions::attention_rehearsal>(
          {.name = "attention_rehearsal",
           .type = OptionType::kInteger,
           .default_text = "1",
           .limits = {1, kLargestCount},
           .help = "Launch attention on the first of so many parts of a row only, everything else "
                   "in full, to see that a very long row fits; rates are then left out; train "
                   "only"}),
  };
}

OptionSpec web_row(OptionSpec spec) {
  spec.group = OptionGroup::kWebUi;
  spec.state = OptionState::kNotYet;
  spec.commands = bit(Command::kWebUi);
  return spec;
}

OptionSpec ignored(OptionSpec spec) {
  spec.group = OptionGroup::kNoEffect;
  spec.state = OptionState::kNoEffect;
  spec.default_text = "none";
  spec.commands = kDataCommands | bit(Command::kInfer);
  return spec;
}

}  // namespace

std::vector<OptionSpec> command_rows() {
  std::vector<OptionSpec> rows = infer_rows();
  rows.push_back(export_row<&ExportOptions::merge_lora>(
      {.name = "merge_lora",
       .type = OptionType::kBoolean,
       .default_text = "false",
       .help = "Merge the adapter into its base model and write full safetensors"}));
  rows.push_back(
      export_row<&ExportOptions::exist_ok>({.name = "exist_ok",
                                            .type = OptionType::kBoolean,
                                            .default_text = "false",
                                            .help = "Write into an existing output_dir"}));
  rows.push_back(data_command_row<&DataCommandOptions::dump_tokens>(
      {.name = "dump_tokens",
       .default_text = "unset",
       .help = "File that gets one JSON line of input_ids and labels per sample"}));
  rows.push_back(data_command_row<&DataCommandOptions::tokenize>(
      {.name = "tokenize",
       .default_text = "unset",
       .help = "File whose lines are printed as JSON lists of token ids; needs --model only"}));
  OptionSpec device{.name = "plan_device",
                    .default_text = "this machine's",
                    .help = "Device to plan for, such as h200 or a100-40",
                    .group = OptionGroup::kPlan,
                    .commands = bit(Command::kPlan)};
  rows.push_back(bind<&Config::plan, &PlanOptions::plan_device>(std::move(device)));
  for (OptionSpec& row : bench_rows()) {
    rows.push_back(std::move(row));
  }
  rows.push_back(web_row({.name = "lang",
                          .type = OptionType::kChoice,
                          .default_text = "en",
                          .choices = {"zh", "en"},
                          .help = "Language of the page"}));
  rows.push_back(web_row(
      {.name = "server_name", .default_text = "127.0.0.1", .help = "Address to listen on"}));
  rows.push_back(web_row({.name = "server_port",
                          .type = OptionType::kInteger,
                          .default_text = "7860",
                          .limits = {1, 65535},
                          .help = "Port to listen on"}));
  return rows;
}

std::vector<OptionSpec> no_effect_rows() {
  const auto boolean = [](std::string_view name, std::string_view help) {
    return ignored({.name = name, .type = OptionType::kBoolean, .help = help});
  };
  const auto integer = [](std::string_view name, double least, std::string_view help) {
    return ignored({.name = name,
                    .type = OptionType::kInteger,
                    .limits = {least, kLargestCount},
                    .help = help});
  };
  return {
      integer("dataloader_num_workers", 0, "Samples are read from a token store"),
      boolean("dataloader_pin_memory", "Samples are read from a token store"),
      integer("dataloader_prefetch_factor", 1, "Samples are read from a token store"),
      boolean("lazy_tokenize", "The token store holds every tokenised sample"),
      boolean("load_from_cache_file", "The token store is used whenever it fits the inputs"),
      integer("packing_num_proc", 1, "Packing takes one thread"),
      boolean("use_liger_kernel", "The loss never holds logits of all tokens"),
      ignored({.name = "gradient_checkpointing_kwargs",
               .type = OptionType::kJson,
               .help = "Backward passes are written out, see activation_policy"}),
      ignored({.name = "ddp_backend",
               .type = OptionType::kChoice,
               .choices = {"nccl", "gloo", "mpi", "ccl", "hccl", "cncl"},
               .help = "GPU ranks use NCCL, CPU ranks MPI"}),
      integer("ddp_timeout", 1, "A dead rank is noticed within seconds"),
      boolean("ddp_find_unused_parameters", "Gradients are reduced by the plan of the model"),
      boolean("check_model", "Model files are always checked"),
  };
}

}  // namespace longhaul::config
