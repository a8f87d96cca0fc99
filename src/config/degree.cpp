// The rules of the contract's paragraph on Ulysses. L is the row length; a degree sp is asked for
// by ceil(L / ulysses_seq_len), by sequence_parallel_size, or by `--ulysses true` alone (all
// ranks).
#include "config/degree.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/ceil_div.h"

namespace longhaul::config {
namespace {

constexpr std::int64_t kLongestRow = std::numeric_limits<std::int32_t>::max();

/// A tokens-per-rank value that cuts a row of `length` into exactly `sp` parts, if there is one.
std::optional<std::int64_t> seq_len_for(std::int64_t length, std::int64_t sp) {
  const std::int64_t seq_len = base::ceil_div(length, sp);
  return base::ceil_div(length, seq_len) == sp ? std::optional(seq_len) : std::nullopt;
}

/// Degree that fits the ranks and heads and is nearest to `wanted`: the next larger one, else the
/// largest.
std::int64_t nearest_degree(const Config& config, const ModelConfig& model, std::int64_t wanted) {
  std::int64_t best = 1;
  for (std::int64_t sp = 1; sp <= std::min(config.launch.ranks, model.num_heads); ++sp) {
    if (config.launch.ranks % sp == 0 && seq_len_for(config.row_length, sp)) {
      best = sp;
      if (sp >= wanted) {
        break;
      }
    }
  }
  return best;
}

/// Smallest number of ranks per node, not below today's, that is a multiple of `sp` over all nodes.
std::int64_t ranks_per_node_for(const LaunchInfo& launch, std::int64_t sp) {
  const std::int64_t local = std::max<std::int64_t>(1, launch.local_ranks);
  const std::int64_t nodes = std::max<std::int64_t>(1, launch.ranks / local);
  std::int64_t per_node = local;
  while (per_node * nodes % sp != 0) {
    ++per_node;
  }
  return per_node;
}

std::string seq_len_option(std::int64_t length, std::int64_t sp) {
  const auto seq_len = seq_len_for(length, sp);
  return seq_len ? fmt::format("--ulysses_seq_len {} or ", *seq_len) : std::string();
}

/// `--ulysses_seq_len X or --sequence_parallel_size Y`.
std::string options_for(const Config& config, std::int64_t sp) {
  return fmt::format("{}--sequence_parallel_size {}", seq_len_option(config.row_length, sp), sp);
}

/// The option that decided the degree, for the head of a message.
std::string deciding_option(const Config& config) {
  if (config.parallel.ulysses_seq_len) {
    return "--ulysses_seq_len";
  }
  return config.parallel.sequence_parallel_size ? "--sequence_parallel_size" : "--ulysses";
}

std::string deciding_value(const Config& config) {
  if (config.parallel.ulysses_seq_len) {
    return fmt::format("{}", *config.parallel.ulysses_seq_len);
  }
  return config.parallel.sequence_parallel_size
             ? fmt::format("{}", *config.parallel.sequence_parallel_size)
             : "true";
}

base::Problem degrees_disagree(const Config& config, std::int64_t by_length, std::int64_t by_size) {
  return {.where = "--sequence_parallel_size",
          .what = fmt::format("--ulysses_seq_len {} cuts rows of {} tokens into {} parts",
                              *config.parallel.ulysses_seq_len, config.row_length, by_length),
          .got = fmt::format("{}", by_size),
          .expected = fmt::format("{}", by_length),
          .hint = fmt::format(
              "Use {} with NPROC_PER_NODE={}, or {} with NPROC_PER_NODE={}",
              options_for(config, by_length), ranks_per_node_for(config.launch, by_length),
              options_for(config, by_size), ranks_per_node_for(config.launch, by_size))};
}

base::Problem too_few_heads(const Config& config, const ModelConfig& model, std::int64_t sp) {
  std::int64_t largest = 1;
  for (std::int64_t fits = 1; fits <= std::min(config.launch.ranks, model.num_heads); ++fits) {
    largest = config.launch.ranks % fits == 0 ? fits : largest;
  }
  return {.where = deciding_option(config),
          .what = fmt::format("sp {} on {} ranks is more than the model's {} query heads", sp,
                              config.launch.ranks, model.num_heads),
          .got = deciding_value(config),
          .expected = fmt::format("sp of at most {}", model.num_heads),
          .hint = fmt::format("The largest sp that fits {} ranks is {}: {}", config.launch.ranks,
                              largest, options_for(config, largest))};
}

base::Problem not_a_multiple(const Config& config, const ModelConfig& model, std::int64_t sp) {
  const std::int64_t fits = nearest_degree(config, model, sp);
  return {
      .where = deciding_option(config),
      .what = fmt::format("rows of {} tokens ask for sp {}, and {} rank{} no multiple of it",
                          config.row_length, sp, config.launch.ranks,
                          config.launch.ranks == 1 ? " is" : "s are"),
      .got = deciding_value(config),
      .expected = {},
      .hint = fmt::format("Use {} with these ranks, or NPROC_PER_NODE={} for sp {}",
                          options_for(config, fits), ranks_per_node_for(config.launch, sp), sp)};
}

/// `--ulysses false` beside an option that turns it on.
std::optional<base::Problem> switched_off(const ParallelOptions& parallel) {
  const bool by_size = parallel.sequence_parallel_size.value_or(1) > 1;
  if (parallel.ulysses.value_or(true) || (!parallel.ulysses_seq_len && !by_size)) {
    return std::nullopt;
  }
  return base::Problem{
      .where = "--ulysses",
      .what = fmt::format("{} asks for it", parallel.ulysses_seq_len ? "--ulysses_seq_len"
                                                                     : "--sequence_parallel_size"),
      .got = "false",
      .expected = {},
      .hint = "Leave out one of the two"};
}

std::int64_t default_max_length(const Config& config, const ModelConfig& model) {
  if (config.parallel.ulysses_seq_len) {
    return *config.parallel.ulysses_seq_len *
           config.parallel.sequence_parallel_size.value_or(config.launch.ranks);
  }
  return config.model.max_model_len.value_or(model.max_position_embeddings);
}

}  // namespace

void decide_lengths(Config& config, const ModelConfig& model,
                    std::vector<base::Problem>& problems) {
  config.max_length = config.data.max_length.value_or(default_max_length(config, model));
  if (config.max_length > kLongestRow) {
    problems.push_back({.where = "--ulysses_seq_len",
                        .what = "rows would be too long",
                        .got = fmt::format("{} tokens", config.max_length),
                        .expected = fmt::format("at most {}", kLongestRow)});
    config.max_length = kLongestRow;
  }
  config.row_length = config.max_length;
  if (!config.data.packing) {
    return;
  }
  config.row_length = config.data.packing_length.value_or(config.max_length);
  if (config.max_length > config.row_length) {
    if (config.data.max_length) {
      problems.push_back({.where = "--packing_length",
                          .what = "shorter than max_length, and samples are never cut",
                          .got = fmt::format("{}", config.row_length),
                          .expected = fmt::format("at least {}", config.max_length)});
    }
    config.max_length = config.row_length;
  }
}

void decide_mesh(Config& config, const ModelConfig& model, std::vector<base::Problem>& problems) {
  const ParallelOptions& parallel = config.parallel;
  if (auto problem = switched_off(parallel)) {
    problems.push_back(std::move(*problem));
    return;
  }
  std::int64_t sp = parallel.ulysses.value_or(false) ? config.launch.ranks : 1;
  sp = parallel.sequence_parallel_size.value_or(sp);
  if (parallel.ulysses_seq_len) {
    const std::int64_t by_length = base::ceil_div(config.row_length, *parallel.ulysses_seq_len);
    if (parallel.sequence_parallel_size && sp != by_length) {
      problems.push_back(degrees_disagree(config, by_length, sp));
      return;
    }
    sp = by_length;
  }
  if (sp > model.num_heads) {
    problems.push_back(too_few_heads(config, model, sp));
  } else if (config.launch.ranks % sp != 0) {
    problems.push_back(not_a_multiple(config, model, sp));
  } else {
    config.mesh = {.dp = config.launch.ranks / sp, .sp = sp};
  }
}

}  // namespace longhaul::config
