// Options that spread one row, the states and the activations over ranks and memories.
#include "config/option_bind.h"
#include "config/option_rows.h"

namespace longhaul::config {
namespace {

template <auto Member>
OptionSpec parallel_row(OptionSpec spec) {
  spec.group = OptionGroup::kParallel;
  spec.commands |= kDataCommands;
  return bind<&Config::parallel, Member>(std::move(spec));
}

template <auto Member>
OptionSpec memory(OptionSpec spec) {
  spec.group = OptionGroup::kMemory;
  spec.commands |= kTrainCommands;
  return bind<&Config::memory, Member>(std::move(spec));
}

std::vector<OptionSpec> ulysses_rows() {
  return {
      parallel_row<&ParallelOptions::ulysses>(
          {.name = "ulysses",
           .type = OptionType::kBoolean,
           .default_text = "on when one of the two below is given",
           .help = "Split every row over ranks; alone, over all of them"}),
      parallel_row<&ParallelOptions::ulysses_seq_len>(
          {.name = "ulysses_seq_len",
           .type = OptionType::kInteger,
           .default_text = "unset",
           .limits = {1, kLargestCount},
           .help =
               "Tokens of a row that one rank holds; the degree is the row length divided by it, "
               "rounded up"}),
      parallel_row<&ParallelOptions::sequence_parallel_size>(
          {.name = "sequence_parallel_size",
           .type = OptionType::kInteger,
           .default_text = "unset",
           .limits = {1, 65536},
           .help =
               "Ranks that share one row (the degree); bench attention takes the heads that one "
               "of them has",
           .commands = bit(Command::kBench)}),
      parallel_row<&ParallelOptions::ring_size>(
          {.name = "ring_size",
           .type = OptionType::kInteger,
           .state = OptionState::kNotYet,
           .default_text = "unset",
           .limits = {1, 65536},
           .help = "Ranks of a ring around the Ulysses groups"}),
      parallel_row<&ParallelOptions::deepspeed>(
          {.name = "deepspeed",
           .default_text = "zero0",
           .help =
               "zero3, for LoRA: frozen weights of the layers are cut over all ranks and gathered "
               "a layer ahead (zero1, zero2, zero2_offload, zero3_offload and DeepSpeed JSON "
               "files are not available yet)",
           .commands = bit(Command::kBench)}),
      parallel_row<&ParallelOptions::fsdp>(
          {.name = "fsdp",
           .default_text = "unset",
           .help = "fsdp2: the same as --deepspeed zero3 (other values are not available yet)",
           .commands = bit(Command::kBench)}),
      {.name = "zero2_offload_optimizer",
       .type = OptionType::kBoolean,
       .state = OptionState::kNotYet,
       .default_text = "false",
       .off = "false",
       .help = "Keep optimizer states in host memory",
       .group = OptionGroup::kParallel,
       .commands = kDataCommands},
  };
}

OptionSpec galore(OptionSpec spec) {
  spec.group = OptionGroup::kGalore;
  spec.state = OptionState::kNotYet;
  spec.commands = kTrainCommands;
  return spec;
}

std::vector<OptionSpec> galore_rows() {
  return {
      galore({.name = "galore",
              .aliases = {"use_galore"},
              .type = OptionType::kBoolean,
              .default_text = "false",
              .off = "false",
              .help = "Project gradients of full fine-tuning to a low rank"}),
      galore({.name = "galore_rank",
              .type = OptionType::kInteger,
              .default_text = "128",
              .limits = {1, 65536},
              .help = "Rank of the projection"}),
      galore({.name = "galore_update_interval",
              .aliases = {"galore_update_proj_gap"},
              .type = OptionType::kInteger,
              .default_text = "50",
              .limits = {1, kLargestCount},
              .help = "Steps between new projections"}),
      galore({.name = "galore_scale",
              .type = OptionType::kReal,
              .default_text = "1.0",
              .limits = {0, 1e6, true},
              .help = "Factor of the projected update"}),
      galore({.name = "galore_proj_type",
              .type = OptionType::kChoice,
              .default_text = "std",
              .choices = {"std", "reverse_std", "left", "right", "full"},
              .help = "Which side is projected"}),
      galore({.name = "galore_target_modules",
              .type = OptionType::kTextList,
              .default_text = "all-linear",
              .help = "Linear layers that are projected"}),
  };
}

std::vector<OptionSpec> memory_rows() {
  return {
      memory<&MemoryOptions::activation_policy>(
          {.name = "activation_policy",
           .default_text = "auto",
           .help =
               "What the backward pass finds kept: auto, A (= keep), B, C, D (= checkpoint), D2, "
               "each with optional +offload (offload = D+offload), or a mix per layer such as "
               "12xA,16xC",
           .commands = bit(Command::kBench)}),
      memory<&MemoryOptions::gradient_checkpointing>(
          {.name = "gradient_checkpointing",
           .type = OptionType::kBoolean,
           .default_text = "unset",
           .help = "false means activation_policy A; true or unset leave the choice to "
                   "activation_policy"}),
      memory<&MemoryOptions::gpu_memory_limit_bytes>({.name = "gpu_memory_limit",
                                                      .type = OptionType::kBytes,
                                                      .default_text = "what is free",
                                                      .limits = {1, 1e18},
                                                      .help = "Bytes per device to plan with",
                                                      .commands = bit(Command::kBench)}),
      memory<&MemoryOptions::host_memory_limit_bytes>(
          {.name = "host_memory_limit",
           .type = OptionType::kBytes,
           .default_text = "what is free",
           .limits = {1, 1e18},
           .help = "Bytes of host memory to plan with, shared by the ranks of a host",
           .commands = bit(Command::kBench)}),
  };
}

}  // namespace

std::vector<OptionSpec> parallel_rows() {
  std::vector<OptionSpec> rows;
  for (const auto& part : {ulysses_rows(), galore_rows(), memory_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace longhaul::config
