// From a validated Config to the parts of a run that need no rank: model description, text,
// parameters' registry, adapter shape, identity for resuming.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/model_config.h"
#include "config/shapes.h"
#include "ops/attention_calls.h"
#include "text/sample_encoder.h"
#include "train/adapter_config.h"
#include "train/checkpoint.h"

namespace longhaul::train {

/// How conversations become tokens in this run.
struct TextSetup {
  std::unique_ptr<text::SampleEncoder> encoder;
  std::string template_name;  // "none" without a chat template
  std::string
      chosen_by;  // how the template was chosen, for the start-up print; empty: by --template
};

/// Loads the tokenizer, chooses the template, reads --system. UserError when they do not fit the
/// model.
TextSetup make_text_setup(const config::Config& config, const config::ModelConfig& model);

/// What trains, and how the adapter is described when it is saved.
struct TuningSetup {
  config::TuningSpec spec;
  std::optional<AdapterConfig> adapter;  // absent with full fine-tuning
  std::string note;  // names both models when --adapters was made for another base; else empty
};

/// From the options, or from `--adapters` (UserError listing explicit options that mean something
/// else).
TuningSetup make_tuning_setup(const config::Config& config, const config::ModelConfig& model);

/// What stands for the data sets and for the base weights in a run's identity.
struct Fingerprints {
  std::string data;
  std::string weights;
};

/// The fields that a resumed run must share with the run that wrote the checkpoint.
RunIdentity make_identity(const config::Config& config, const TuningSetup& tuning,
                          const TextSetup& text, const Fingerprints& fingerprints);

/// Element type of weights and activations.
base::Dtype compute_dtype(const config::Config& config, const config::ModelConfig& model);

/// What --attn_impl asks of GPU ranks.
ops::AttentionKernels attention_kernels(const config::Config& config);

}  // namespace longhaul::train
