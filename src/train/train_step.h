// One optimizer step and one evaluation over all ranks: which rows, the one divisor of the loss,
// the reductions.
#pragma once

#include <cstdint>
#include <functional>

#include "config/config.h"
#include "data/schedule.h"
#include "data/token_store.h"
#include "dist/communicator.h"
#include "dist/shard.h"
#include "model/decoder_model.h"
#include "model/parameters.h"
#include "train/optimizer.h"

namespace longhaul::train {

/// Sums over all ranks and micro-batches of one step.
struct StepOutcome {
  double loss = 0;       // nats per target token of the global batch; 0 without targets
  double grad_norm = 0;  // before clipping
  std::int64_t tokens = 0;
  std::int64_t target_tokens = 0;
  std::int64_t correct_tokens = 0;
  double attended_length = 0;  // metrics/rates.h
  double comm_wait_s = 0;      // mean over ranks
  double comm_bytes = 0;       // sent by one rank in exchanges, mean over ranks
  double comm_busy_s = 0;
  std::int64_t stop_signal =
      0;  // largest signal that any rank was asked to stop by; agreed by all ranks
};

struct EvalOutcome {
  double loss = 0;
  double token_acc = 0;
  std::int64_t target_tokens = 0;
};

/// The parts of a run that a step works on; all outlive it.
struct StepParts {
  const config::Config* config = nullptr;
  dist::Communicator* world = nullptr;
  dist::Communicator* sp = nullptr;  // the world itself when all ranks share sequences
  model::DecoderModel* model = nullptr;
  model::Parameters* parameters = nullptr;
  AdamW* optimizer = nullptr;
  double lora_dropout = 0;
};

/// Trains the sequences of `plan`: forward and backward of this rank's micro-batches, gradient sum
/// over all ranks in fp32, norm, clip, update. `stop_signal` tells what this rank has been asked
/// (0: go on); it is read after the last micro-batch, so that a request during the step ends the
/// run with this step. Order   collective over the world: exchanges of every micro-batch, then one
/// sum of losses, one of gradients Errors  UserError when the gradient norm is not finite (nothing
/// is updated)
StepOutcome run_step(const StepParts& parts, const data::TokenStore& store,
                     const data::StepPlan& plan, double learning_rate,
                     const std::function<std::int64_t()>& stop_signal);

/// The same step for one row that lies in memory: this rank's shard of it, the row's targets.
StepOutcome run_row_step(const StepParts& parts, const dist::LocalBatch& shard,
                         std::int64_t targets, double learning_rate);

/// Loss and accuracy over the whole validation set, each row once. Collective over the world.
EvalOutcome run_evaluation(const StepParts& parts, const data::TokenStore& store);

}  // namespace longhaul::train
