// base model + LoRA adapter → a plain model folder: W + scale·B·A in fp32 for every target, modules
// saved with the adapter in place of the base's, everything else as it was. Tensors pass through
// one at a time, in tiles, so host memory holds the adapter and one tile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "config/model_config.h"
#include "infer/loaded_model.h"

namespace longhaul::infer {

struct MergeRequest {
  std::filesystem::path model_folder;
  AdapterSource adapter;
  std::filesystem::path output_folder;
  bool exist_ok = false;                          // replace the model in an existing folder
  std::optional<base::Dtype> dtype;               // absent: as the base stores each tensor
  std::optional<std::int64_t> max_model_len;      // written into config.json
  std::vector<std::filesystem::path> more_files;  // copied along
};

struct MergeReport {
  std::int64_t merged_matrices = 0;
  std::int64_t replaced_tensors = 0;
  bool untied = false;                    // embedding and head were one tensor and are two now
  std::vector<std::string> weight_files;  // names in the output folder
};

/// Refuses, before anything is read or written, an output folder that exists (unless exist_ok),
/// that is the model's or the adapter's own, or that is no folder (UserError).
void check_merge_target(const MergeRequest& request);

/// Writes the merged model. A new output folder appears whole or not at all; in an existing one
/// (exist_ok) the files are replaced one by one after all of them have been written inside it.
///
/// Files   the base's weight files by name and content; config, generation and tokenizer files
/// copied Errors  UserError: as check_merge_target, missing or mis-shaped tensors, values that are
/// not
///         finite (in the result's type too); SystemError: the folder cannot be written
MergeReport merge_adapter(const config::ModelConfig& model, const MergeRequest& request);

}  // namespace longhaul::infer
