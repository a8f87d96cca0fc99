#include "data/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/rng.h"

namespace longhaul::data {
namespace {

PackedRows make_rows(const TokenStore& train, const config::Config& config) {
  if (!config.data.packing) {
    return single_samples(train.size());
  }
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(train.size()));
  for (std::int64_t i = 0; i < train.size(); ++i) {
    lengths[static_cast<std::size_t>(i)] = train.length(i);
  }
  return pack_samples(lengths, config.row_length, config.data.packing_strategy);
}

}  // namespace

TrainSchedule::TrainSchedule(const TokenStore& train, const config::Config& config)
    : train_(&train),
      rows_(make_rows(train, config)),
      shuffle_(config.data.train_dataloader_shuffle),
      packed_(config.data.packing),
      row_length_(config.row_length),
      strategy_(config.data.packing_strategy),
      seed_(static_cast<std::uint64_t>(config.data.data_seed)),
      batch_(config.train.per_device_train_batch_size),
      accumulation_(config.accumulation),
      dp_(config.mesh.dp) {
  LONGHAUL_ASSERT(rows_.num_rows() > 0, "a training set has rows");
  LONGHAUL_ASSERT(batch_ > 0 && accumulation_ > 0 && dp_ > 0, "a step trains something");
  steps_per_epoch_ = base::ceil_div(rows_.num_rows(), batch_ * accumulation_ * dp_);
  total_steps_ = config.train.max_steps > 0
                     ? config.train.max_steps
                     : static_cast<std::int64_t>(std::ceil(config.train.num_train_epochs *
                                                           static_cast<double>(steps_per_epoch_)));
}

Cursor TrainSchedule::cursor(std::int64_t global_step) const {
  LONGHAUL_ASSERT(global_step >= 0, "steps count from 0");
  return {.epoch = global_step / steps_per_epoch_, .step = global_step % steps_per_epoch_};
}

void TrainSchedule::load_epoch(std::int64_t epoch) {
  if (loaded_epoch_ == epoch) {
    return;
  }
  const base::CounterRng rng(seed_, base::RngPurpose::kShuffleEpoch,
                             static_cast<std::uint64_t>(epoch));
  order_ = shuffle_ ? base::permutation(rows_.num_rows(), rng)
                    : single_samples(rows_.num_rows()).samples;
  loaded_epoch_ = epoch;
}

StepPlan TrainSchedule::step(std::int64_t global_step) {
  StepPlan plan;
  plan.global_step = global_step;
  plan.cursor = cursor(global_step);
  plan.epoch_fraction =
      static_cast<double>(global_step + 1) / static_cast<double>(steps_per_epoch_);
  load_epoch(plan.cursor.epoch);
  const std::int64_t step_sequences = batch_ * accumulation_ * dp_;
  const std::int64_t first = plan.cursor.step * step_sequences;
  plan.num_sequences = std::min(step_sequences, rows_.num_rows() - first);
  plan.micros.resize(static_cast<std::size_t>(accumulation_));
  for (auto& groups : plan.micros) {
    groups.resize(static_cast<std::size_t>(dp_));
  }
  for (std::int64_t i = 0; i < plan.num_sequences; ++i) {
    const auto sequence = order_[static_cast<std::size_t>(first + i)];
    const std::int64_t slot = i / batch_;  // = m·dp + g
    SampleList& samples =
        plan.micros[static_cast<std::size_t>(slot / dp_)][static_cast<std::size_t>(slot % dp_)];
    const auto row = rows_.row(sequence);
    samples.insert(samples.end(), row.begin(), row.end());
  }
  return plan;
}

std::int64_t TrainSchedule::row_tokens(std::int64_t row) const {
  std::int64_t tokens = 0;
  for (const std::int64_t sample : rows_.row(row)) {
    tokens += train_->length(sample);
  }
  return tokens;
}

double TrainSchedule::attended_length() const {
  double squares = 0;
  for (std::int64_t sample = 0; sample < train_->size(); ++sample) {
    const auto length = static_cast<double>(train_->length(sample));
    squares += length * length;
  }
  return squares / static_cast<double>(std::max<std::int64_t>(1, train_->total_tokens()));
}

std::int64_t TrainSchedule::largest_batch_tokens() const {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(rows_.num_rows()));
  for (std::int64_t row = 0; row < rows_.num_rows(); ++row) {
    tokens[static_cast<std::size_t>(row)] = row_tokens(row);
  }
  const std::int64_t count = std::min(batch_, rows_.num_rows());
  std::partial_sort(tokens.begin(), tokens.begin() + count, tokens.end(), std::greater<>());
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    total += tokens[static_cast<std::size_t>(i)];
  }
  return total;
}

std::string TrainSchedule::identity() const {
  const std::string packing =
      packed_
          ? fmt::format("packed {} to {}",
                        strategy_ == config::PackingStrategy::kBinpack ? "binpack" : "sequential",
                        row_length_)
          : "not packed";
  return fmt::format("{}, {} sequences, {} per step, {}", packing, rows_.num_rows(),
                     batch_ * accumulation_ * dp_,
                     shuffle_ ? fmt::format("shuffled by {}", seed_) : "not shuffled");
}

EvalSchedule::EvalSchedule(const TokenStore& validation, const config::Config& config)
    : size_(validation.size()),
      batch_(config.train.per_device_eval_batch_size),
      dp_(config.mesh.dp) {
  LONGHAUL_ASSERT(batch_ > 0 && dp_ > 0, "a round evaluates something");
}

std::int64_t EvalSchedule::num_rounds() const { return base::ceil_div(size_, batch_ * dp_); }

std::vector<SampleList> EvalSchedule::round(std::int64_t index) const {
  LONGHAUL_ASSERT(index >= 0 && index < num_rounds(), "a round lies inside the evaluation");
  std::vector<SampleList> groups(static_cast<std::size_t>(dp_));
  const std::int64_t first = index * batch_ * dp_;
  const std::int64_t end = std::min(first + batch_ * dp_, size_);
  for (std::int64_t sample = first; sample < end; ++sample) {
    groups[static_cast<std::size_t>((sample - first) / batch_)].push_back(sample);
  }
  return groups;
}

}  // namespace longhaul::data
