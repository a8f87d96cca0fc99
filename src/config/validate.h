// From parsed options to a Config on which everything is decided. All faults of the options and of
// config.json are thrown together, before anything is written or any device is touched.
#pragma once

#include "config/config.h"
#include "config/model_config.h"
#include "config/options.h"
#include "config/shapes.h"

namespace longhaul::config {

/// Checks every rule between options, model and ranks, and decides mesh, lengths, accumulation and
/// learning rate. UserError with all faults (those of `parsed` included); SystemError for `--device
/// cuda` without a GPU.
Config resolve(const ParsedOptions& parsed, const ModelConfig& model, const LaunchInfo& launch);

/// The same for commands that need no model at this point (`data --tokenize`, infer and export from
/// an adapter): only what options and ranks tell is checked and decided.
Config resolve_without_model(const ParsedOptions& parsed, const LaunchInfo& launch);

/// Reads the model's config.json where the command needs it, then resolves; its faults join the
/// options'.
Config load_config(const ParsedOptions& parsed, const LaunchInfo& launch);

/// Which parameters train, LoRA targets resolved to module paths. Not for a run that starts from
/// `--adapters`, whose shape comes from the adapter.
TuningSpec tuning_spec(const Config& config, const ModelConfig& model);

}  // namespace longhaul::config
