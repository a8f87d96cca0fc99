// Checkpoint folders as files: whole or absent, with a manifest of sizes and checksums that tells
// damage later. What the files hold is written by others; this part needs no tensor library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace longhaul::train {

/// Names of the files that every checkpoint shares.
constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kTrainerStateFile = "trainer_state.json";

/// `checkpoint-N` of a run folder.
std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, std::int64_t step);
/// N of a folder named `checkpoint-N`; nothing for any other name.
std::optional<std::int64_t> checkpoint_step(const std::filesystem::path& folder);
/// Every `checkpoint-N` folder of a run, N ascending; damaged ones too.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run_folder);

/// A checkpoint being written as `.tmp-checkpoint-N`; without publish() nothing of it remains.
class PendingCheckpoint {
 public:
  PendingCheckpoint(const std::filesystem::path& run_folder, std::int64_t step);

  /// Where the files go.
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }
  /// Writes the manifest of everything in path(), syncs and renames. A checkpoint of the same step,
  /// left by a run that this one resumes, makes way. SystemError on failure. Returns the final
  /// path.
  std::filesystem::path publish();

 private:
  std::filesystem::path final_;
  base::PendingFolder folder_;
};

/// The first file of a checkpoint that is not as it was written.
struct Damage {
  std::string file;    // relative to the checkpoint
  std::string reason;  // "missing", "…", with what was found and expected
};
/// Compares every file with the manifest, sizes first; nothing when the checkpoint is whole. Files
/// that the manifest does not know (results of later commands) do not count.
std::optional<Damage> find_damage(const std::filesystem::path& checkpoint);
/// UserError naming the damaged file.
void require_whole(const std::filesystem::path& checkpoint);

/// Where a resumed run starts from, and what should be said about it.
struct ResumePoint {
  std::filesystem::path checkpoint;
  std::vector<std::string> notes;
};
/// `path`: a checkpoint (must be whole) or a run folder (its newest whole checkpoint; the notes
/// name it and each newer one that was skipped and why). Links such as `last` work. UserError when
/// there is none.
ResumePoint find_resume_point(const std::filesystem::path& path);

/// Removes the oldest checkpoints until at most `limit` (≥ 1) remain, never `best` (may be empty)
/// nor the newest. Each vanishes in one step. Returns what was removed.
std::vector<std::filesystem::path> prune_checkpoints(const std::filesystem::path& run_folder,
                                                     std::int64_t limit,
                                                     const std::filesystem::path& best);

/// Removes what a crash left behind: `.tmp-*` of unfinished checkpoints and removals.
void remove_leftovers(const std::filesystem::path& run_folder);

}  // namespace longhaul::train
