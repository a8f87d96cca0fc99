// Options that say what is trained on and how rows are cut and packed.
#include "config/option_bind.h"
#include "config/option_rows.h"

namespace longhaul::config {
namespace {

constexpr CommandSet kWithBatch = bit(Command::kInfer);

template <auto Member>
OptionSpec data_row(OptionSpec spec) {
  spec.group = OptionGroup::kData;
  spec.commands |= kDataCommands;
  return bind<&Config::data, Member>(std::move(spec));
}

std::vector<OptionSpec> source_rows() {
  return {
      data_row<&DataOptions::dataset>(
          {.name = "dataset",
           .type = OptionType::kTextList,
           .default_text = "required",
           .help =
               "Training files (.jsonl, .json) or names; PATH#N takes N rows, several are joined"}),
      data_row<&DataOptions::val_dataset>({.name = "val_dataset",
                                           .type = OptionType::kTextList,
                                           .default_text = "none",
                                           .help = "Validation files; for infer the rows to answer",
                                           .commands = kWithBatch}),
      data_row<&DataOptions::custom_dataset_info>({.name = "custom_dataset_info",
                                                   .default_text = "none",
                                                   .help = "File that gives names to data sets",
                                                   .commands = kWithBatch}),
      data_row<&DataOptions::split_dataset_ratio>(
          {.name = "split_dataset_ratio",
           .type = OptionType::kReal,
           .default_text = "0",
           .limits = {0, 1, false, true},
           .help = "Share of the training rows set aside for validation"}),
      data_row<&DataOptions::columns>(
          {.name = "columns",
           .type = OptionType::kTextMap,
           .default_text = "{}",
           .help = "JSON object from the file's field names to the known ones",
           .commands = kWithBatch}),
      data_row<&DataOptions::strict>(
          {.name = "strict",
           .type = OptionType::kBoolean,
           .default_text = "false",
           .help = "Stop at the first bad row instead of dropping and counting it",
           .commands = kWithBatch}),
      data_row<&DataOptions::dataset_num_proc>({.name = "dataset_num_proc",
                                                .type = OptionType::kInteger,
                                                .default_text = "1",
                                                .limits = {1, 1024},
                                                .help = "Threads that tokenise the data set",
                                                .commands = kWithBatch}),
      data_row<&DataOptions::streaming>({.name = "streaming",
                                         .type = OptionType::kBoolean,
                                         .state = OptionState::kNotYet,
                                         .default_text = "false",
                                         .off = "false",
                                         .help = "Read the data set while training"}),
      data_row<&DataOptions::cache_dir>({.name = "cache_dir",
                                         .default_text = "$XDG_CACHE_HOME/longhaul",
                                         .help = "Where tokenised data sets are kept",
                                         .commands = kWithBatch}),
  };
}

std::vector<OptionSpec> length_rows() {
  return {
      data_row<&DataOptions::max_length>(
          {.name = "max_length",
           .type = OptionType::kInteger,
           .default_text = "max_position_embeddings; with ulysses_seq_len: that times the degree",
           .limits = {1, kLargestCount},
           .help = "Longest sample in tokens",
           .commands = kWithBatch}),
      data_row<&DataOptions::truncation_strategy>(
          {.name = "truncation_strategy",
           .type = OptionType::kChoice,
           .default_text = "delete",
           .choices = {"delete", "left", "right", "split"},
           .help =
               "What happens to longer samples: dropped, last or first tokens kept, or cut into "
               "several (pt only)",
           .commands = kWithBatch}),
      data_row<&DataOptions::packing>(
          {.name = "packing",
           .type = OptionType::kBoolean,
           .default_text = "false",
           .help = "Join samples to rows of packing_length; samples never see "
                   "each other and are never cut"}),
      data_row<&DataOptions::packing_length>({.name = "packing_length",
                                              .type = OptionType::kInteger,
                                              .default_text = "max_length",
                                              .limits = {1, kLargestCount},
                                              .help = "Longest packed row in tokens"}),
      data_row<&DataOptions::packing_strategy>({.name = "packing_strategy",
                                                .type = OptionType::kChoice,
                                                .default_text = "binpack",
                                                .choices = {"binpack", "sequential"},
                                                .help = "Fewest rows, or rows in file order"}),
      data_row<&DataOptions::padding_free>(
          {.name = "padding_free",
           .type = OptionType::kBoolean,
           .default_text = "false",
           .help = "Accepted; batches are always flattened, never padded"}),
      data_row<&DataOptions::loss_scale>(
          {.name = "loss_scale",
           .type = OptionType::kChoice,
           .default_text = "default (pt: all)",
           .choices = {"default", "last_round", "all"},
           .help = "Which tokens are targets: every answer, the last answer, or all"}),
  };
}

std::vector<OptionSpec> order_rows() {
  return {
      data_row<&DataOptions::dataset_shuffle>({.name = "dataset_shuffle",
                                               .type = OptionType::kBoolean,
                                               .default_text = "true",
                                               .help = "Shuffle the rows once after loading"}),
      data_row<&DataOptions::train_dataloader_shuffle>({.name = "train_dataloader_shuffle",
                                                        .type = OptionType::kBoolean,
                                                        .default_text = "true",
                                                        .help = "Another order in every epoch"}),
      data_row<&DataOptions::data_seed>(
          {.name = "data_seed",
           .type = OptionType::kInteger,
           .default_text = "42",
           .limits = {0, kLargestSeed},
           .help = "Seed of shuffling, splitting and sampling of rows"}),
  };
}

}  // namespace

std::vector<OptionSpec> data_rows() {
  std::vector<OptionSpec> rows;
  for (const auto& part : {source_rows(), length_rows(), order_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace longhaul::config
