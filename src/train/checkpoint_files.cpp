#include "train/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "train/run_folder.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;
using base::OrderedJson;

constexpr std::string_view kCheckpointPrefix = "checkpoint-";
constexpr const char* kRemovedPrefix = ".tmp-removed-";
constexpr int kManifestFormat = 1;

/// Files below `folder` by their relative names, sorted.
std::set<std::string> files_below(const fs::path& folder) {
  std::set<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at->is_regular_file(error)) {
      files.insert(at->path().lexically_relative(folder).string());
    }
  }
  if (error) {
    throw base::SystemError({.where = folder.string(), .what = "cannot list: " + error.message()});
  }
  return files;
}

void write_manifest(const fs::path& folder) {
  OrderedJson files = OrderedJson::object();
  for (const std::string& name : files_below(folder)) {
    files[name] = {{"size", fs::file_size(folder / name)},
                   {"xxh3_64", base::checksum_file(folder / name)}};
  }
  OrderedJson manifest;
  manifest["format"] = kManifestFormat;
  manifest["files"] = files;
  // Tells damage of the manifest itself from damage of a file that it lists.
  manifest["files_xxh3_64"] = base::checksum_text(files.dump());
  base::write_file_atomically(folder / kManifestFile, manifest.dump(2) + "\n");
}

struct ManifestEntry {
  std::string name;
  std::uint64_t size = 0;
  std::string checksum;
};

/// Entries of the manifest, or why it cannot be trusted.
std::optional<std::vector<ManifestEntry>> read_manifest(const fs::path& path, std::string& reason) {
  std::string text;
  try {
    text = base::read_file(path);
  } catch (const base::UserError&) {
    reason = "missing or unreadable";
    return std::nullopt;
  }
  base::JsonFault fault;
  const auto json = base::try_parse_ordered_json(text, fault);
  if (!json) {
    reason = "not valid JSON: " + fault.reason;
    return std::nullopt;
  }
  try {
    const OrderedJson& files = json->at("files");
    if (json->at("format") != kManifestFormat) {
      reason = "its format is unknown";
      return std::nullopt;
    }
    if (json->at("files_xxh3_64") != base::checksum_text(files.dump())) {
      reason = "its own checksum differs";
      return std::nullopt;
    }
    std::vector<ManifestEntry> entries;
    for (const auto& [name, entry] : files.items()) {
      entries.push_back({.name = name,
                         .size = entry.at("size").get<std::uint64_t>(),
                         .checksum = entry.at("xxh3_64").get<std::string>()});
    }
    return entries;
  } catch (const OrderedJson::exception&) {
    reason = "an entry is missing or of the wrong type";
    return std::nullopt;
  }
}

/// Takes a folder out of sight in one step, so that a half-removed one is never mistaken for a
/// checkpoint.
void remove_folder(const fs::path& folder) {
  const fs::path hidden = folder.parent_path() / (kRemovedPrefix + folder.filename().string());
  std::error_code error;
  fs::remove_all(hidden, error);
  fs::rename(folder, hidden, error);
  if (!error) {
    fs::remove_all(hidden, error);
  }
  if (error) {
    throw base::SystemError(
        {.where = folder.string(), .what = "cannot remove the checkpoint: " + error.message()});
  }
}

std::string describe(const Damage& damage) {
  return fmt::format("{} is damaged ({})", damage.file, damage.reason);
}

[[noreturn]] void refuse_resume(const fs::path& path, std::string what, std::string hint) {
  throw base::UserError(base::Problem{.where = "--resume_from_checkpoint",
                                      .what = std::move(what),
                                      .got = path.string(),
                                      .expected = "a checkpoint-N or run folder",
                                      .hint = std::move(hint)});
}

ResumePoint newest_whole(const fs::path& run_folder, const fs::path& as_given) {
  ResumePoint point;
  std::vector<fs::path> checkpoints = list_checkpoints(run_folder);
  std::reverse(checkpoints.begin(), checkpoints.end());
  for (const fs::path& checkpoint : checkpoints) {
    const auto damage = find_damage(checkpoint);
    if (!damage) {
      point.checkpoint = checkpoint;
      point.notes.push_back(fmt::format("resuming from {}", checkpoint.string()));
      return point;
    }
    point.notes.push_back(fmt::format("skipped {}: {}", checkpoint.string(), describe(*damage)));
  }
  if (!checkpoints.empty()) {
    const auto damage = find_damage(checkpoints.front());
    refuse_resume(as_given, "every checkpoint of the run is damaged",
                  fmt::format("The newest, {}: {}", checkpoints.front().filename().string(),
                              damage ? describe(*damage) : "has changed just now"));
  }
  const fs::path version = newest_version(run_folder);
  refuse_resume(as_given, "no checkpoint in this folder",
                version.empty() ? "" : fmt::format("Its newest run is {}", version.string()));
}

}  // namespace

fs::path checkpoint_path(const fs::path& run_folder, std::int64_t step) {
  return run_folder / fmt::format("{}{}", kCheckpointPrefix, step);
}

std::optional<std::int64_t> checkpoint_step(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kCheckpointPrefix)) {
    return std::nullopt;
  }
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kCheckpointPrefix.size(), end, step);
  // Only the canonical spelling: checkpoint-007 is not ours.
  if (parsed.ec != std::errc() || parsed.ptr != end || step < 0 ||
      name != fmt::format("{}{}", kCheckpointPrefix, step)) {
    return std::nullopt;
  }
  return step;
}

std::vector<fs::path> list_checkpoints(const fs::path& run_folder) {
  std::vector<fs::path> checkpoints;
  std::error_code error;
  for (fs::directory_iterator at(run_folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    std::error_code ignored;
    if (checkpoint_step(at->path()) && fs::is_directory(at->symlink_status(ignored))) {
      checkpoints.push_back(at->path());
    }
  }
  std::sort(checkpoints.begin(), checkpoints.end(), [](const fs::path& a, const fs::path& b) {
    return checkpoint_step(a) < checkpoint_step(b);
  });
  return checkpoints;
}

PendingCheckpoint::PendingCheckpoint(const fs::path& run_folder, std::int64_t step)
    : final_(checkpoint_path(run_folder, step)), folder_(final_) {}

fs::path PendingCheckpoint::publish() {
  write_manifest(folder_.path());
  std::error_code ignored;
  if (fs::exists(final_, ignored)) {
    remove_folder(final_);
  }
  folder_.publish();
  return final_;
}

std::optional<Damage> find_damage(const fs::path& checkpoint) {
  std::string reason;
  const auto entries = read_manifest(checkpoint / kManifestFile, reason);
  if (!entries) {
    return Damage{.file = kManifestFile, .reason = reason};
  }
  for (const ManifestEntry& entry : *entries) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(checkpoint / entry.name, error);
    if (error) {
      return Damage{.file = entry.name, .reason = "missing"};
    }
    if (size != entry.size) {
      return Damage{.file = entry.name,
                    .reason = fmt::format("{} bytes instead of {}", size, entry.size)};
    }
  }
  for (const ManifestEntry& entry : *entries) {
    try {
      if (base::checksum_file(checkpoint / entry.name) != entry.checksum) {
        return Damage{.file = entry.name, .reason = "its checksum differs"};
      }
    } catch (const base::UserError& error) {
      return Damage{.file = entry.name, .reason = error.problems().front().what};
    }
  }
  return std::nullopt;
}

void require_whole(const fs::path& checkpoint) {
  if (const auto damage = find_damage(checkpoint)) {
    throw base::UserError(
        base::Problem{.where = (checkpoint / damage->file).string(),
                      .what = "the checkpoint is damaged: " + damage->reason,
                      .hint = "Name an older checkpoint, or the run folder to take its newest "
                              "whole one"});
  }
}

ResumePoint find_resume_point(const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::canonical(path, error);
  if (error || !fs::is_directory(folder, error)) {
    refuse_resume(path, "not a folder", "");
  }
  const bool is_checkpoint = checkpoint_step(folder).has_value() ||
                             fs::exists(folder / kTrainerStateFile, error) ||
                             fs::exists(folder / kManifestFile, error);
  if (!is_checkpoint) {
    return newest_whole(folder, path);
  }
  require_whole(folder);
  return {.checkpoint = folder, .notes = {fmt::format("resuming from {}", folder.string())}};
}

std::vector<fs::path> prune_checkpoints(const fs::path& run_folder, std::int64_t limit,
                                        const fs::path& best) {
  LONGHAUL_ASSERT(limit >= 1, "at least one checkpoint is kept");
  std::vector<fs::path> checkpoints = list_checkpoints(run_folder);
  auto remaining = static_cast<std::int64_t>(checkpoints.size());
  if (checkpoints.empty()) {
    return {};
  }
  checkpoints.pop_back();  // the newest stays
  std::vector<fs::path> removed;
  for (const fs::path& checkpoint : checkpoints) {
    if (remaining <= limit) {
      break;
    }
    if (best.filename() != checkpoint.filename()) {
      remove_folder(checkpoint);
      removed.push_back(checkpoint);
      --remaining;
    }
  }
  return removed;
}

void remove_leftovers(const fs::path& run_folder) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator at(run_folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(".tmp-checkpoint-") || name.starts_with(kRemovedPrefix)) {
      leftovers.push_back(at->path());
    }
  }
  for (const fs::path& leftover : leftovers) {
    fs::remove_all(leftover, error);
  }
}

}  // namespace longhaul::train
