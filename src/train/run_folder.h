// The folder of one run: `output_dir/vK-YYYYMMDD-HHMMSS/` (docs/run_folder.md). Faults of the disk
// are SystemError.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"

namespace longhaul::train {

/// What decides where a run goes.
struct RunFolderRequest {
  std::filesystem::path output_dir;
  /// false: the run folder is output_dir itself.
  bool add_version = true;
  /// The checkpoint or run folder that is resumed from; empty: a fresh run.
  std::filesystem::path resumed_from{};
  /// Local time of the folder's name.
  std::time_t now = 0;
};

/// Refuses, before anything is made, an output_dir that already holds another run when no version
/// is added (UserError), or where nothing can be written (SystemError).
void check_run_folder(const RunFolderRequest& request);

/// Refuses to go on after `step` in a run folder that holds whole checkpoints of later steps: no
/// file of a checkpoint changes once it has its name (UserError).
void check_nothing_newer(const std::filesystem::path& run_folder, std::int64_t step);

/// Makes the folder and returns its absolute path; K is one more than the largest there. Checks as
/// above first.
std::filesystem::path make_run_folder(const RunFolderRequest& request);

/// Whether a folder holds (part of) a run: args.json, logging.jsonl or a checkpoint.
bool holds_run(const std::filesystem::path& folder);

/// The newest version folder in `output_dir`; empty when there is none.
std::filesystem::path newest_version(const std::filesystem::path& output_dir);

/// args.json: every option with its final value, and the version of the program.
void write_args_json(const std::filesystem::path& folder, const base::OrderedJson& options,
                     std::string_view version);
/// Reads args.json of a run or checkpoint; UserError when missing or no object.
base::OrderedJson read_args_json(const std::filesystem::path& folder);

/// Points `run_folder/name` (best, last) at the checkpoint of the same run, replacing an older link
/// in one step.
void point_symlink(const std::filesystem::path& run_folder, const std::string& name,
                   const std::filesystem::path& checkpoint);

}  // namespace longhaul::train
