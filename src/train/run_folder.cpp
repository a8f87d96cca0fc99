#include "train/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "train/checkpoint_files.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersionKey = "longhaul_version";

[[noreturn]] void fail(const fs::path& path, std::string_view action, int error) {
  throw base::SystemError(
      {.where = path.string(),
       .what = fmt::format("cannot {}: {}", action, std::generic_category().message(error))});
}

/// K of `vK-YYYYMMDD-HHMMSS`; nothing for any other name.
std::optional<std::int64_t> version_number(const std::string& name) {
  constexpr std::string_view kShape = "-dddddddd-dddddd";
  if (name.size() < 2 + kShape.size() || name[0] != 'v') {
    return std::nullopt;
  }
  std::int64_t number = 0;
  const char* end = name.data() + name.size() - kShape.size();
  const auto parsed = std::from_chars(name.data() + 1, end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < 0) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    const char c = end[i];
    if (kShape[i] == 'd' ? std::isdigit(static_cast<unsigned char>(c)) == 0 : c != kShape[i]) {
      return std::nullopt;
    }
  }
  return number;
}

struct Version {
  std::int64_t number = -1;
  fs::path folder;
};

Version largest_version(const fs::path& output_dir) {
  Version largest;
  std::error_code error;
  for (fs::directory_iterator at(output_dir, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const auto number = version_number(at->path().filename().string());
    std::error_code ignored;
    if (number && *number > largest.number && at->is_directory(ignored)) {
      largest = {.number = *number, .folder = at->path()};
    }
  }
  return largest;
}

/// Whether `inner` is `outer` or lies in it, symlinks resolved.
bool is_inside(const fs::path& inner, const fs::path& outer) {
  std::error_code error;
  const fs::path a = fs::weakly_canonical(inner, error);
  const fs::path b = fs::weakly_canonical(outer, error);
  const auto [left, right] = std::mismatch(b.begin(), b.end(), a.begin(), a.end());
  return left == b.end();
}

/// Early, since a run that cannot write would otherwise say so after loading everything.
void check_writable(const fs::path& output_dir) {
  std::error_code ignored;
  fs::path existing = fs::absolute(output_dir, ignored);
  while (!fs::exists(existing, ignored) && existing.has_parent_path() &&
         existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  const bool is_folder = fs::is_directory(existing, ignored);
  if (!is_folder || ::access(existing.c_str(), W_OK | X_OK) != 0) {
    fail(output_dir, "write the run's files here", is_folder ? errno : ENOTDIR);
  }
}

}  // namespace

void check_run_folder(const RunFolderRequest& request) {
  check_writable(request.output_dir);
  if (request.add_version || !holds_run(request.output_dir)) {
    return;
  }
  const bool resumes_it =
      !request.resumed_from.empty() && is_inside(request.resumed_from, request.output_dir);
  if (!resumes_it) {
    throw base::UserError(base::Problem{
        .where = "--output_dir",
        .what = "the folder already holds a run",
        .got = request.output_dir.string(),
        .hint = "Choose another folder, or drop --add_version false, or resume from this run"});
  }
}

void check_nothing_newer(const fs::path& run_folder, std::int64_t step) {
  std::string newer;
  for (const fs::path& checkpoint : list_checkpoints(run_folder)) {
    if (checkpoint_step(checkpoint).value_or(0) > step && !find_damage(checkpoint)) {
      newer += (newer.empty() ? "" : ", ") + checkpoint.filename().string();
    }
  }
  if (!newer.empty()) {
    throw base::UserError(base::Problem{
        .where = "--resume_from_checkpoint",
        .what = "the run folder holds newer checkpoints, which would be replaced",
        .got = newer,
        .hint = "Resume from the newest, or leave out --add_version false, or move them away"});
  }
}

fs::path make_run_folder(const RunFolderRequest& request) {
  check_run_folder(request);
  base::make_folder(request.output_dir);
  std::error_code error;
  fs::path output = fs::canonical(request.output_dir, error);
  if (error) {
    fail(request.output_dir, "resolve the folder", error.value());
  }
  if (!request.add_version) {
    return output;
  }
  std::tm local{};
  ::localtime_r(&request.now, &local);
  // mkdir fails for a name that another run has just taken; then the next number is free.
  for (std::int64_t number = largest_version(output).number + 1;; ++number) {
    fs::path folder = output / fmt::format("v{}-{:%Y%m%d-%H%M%S}", number, local);
    if (::mkdir(folder.c_str(), 0777) == 0) {
      base::sync_path(output);
      return folder;
    }
    if (errno != EEXIST) {
      fail(folder, "create the run folder", errno);
    }
  }
}

bool holds_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "args.json", ignored) ||
         fs::exists(folder / "logging.jsonl", ignored) || !list_checkpoints(folder).empty();
}

fs::path newest_version(const fs::path& output_dir) { return largest_version(output_dir).folder; }

void write_args_json(const fs::path& folder, const base::OrderedJson& options,
                     std::string_view version) {
  LONGHAUL_ASSERT(options.is_object(), "the options are an object");
  base::OrderedJson json;
  json[kVersionKey] = version;
  json.update(options);
  base::write_file_atomically(folder / "args.json", json.dump(2) + "\n");
}

base::OrderedJson read_args_json(const fs::path& folder) {
  const fs::path path = folder / "args.json";
  base::OrderedJson json = base::parse_ordered_json(base::read_file(path), path.string());
  if (!json.is_object()) {
    throw base::UserError(
        base::Problem{.where = path.string(), .what = "not an object of options"});
  }
  return json;
}

void point_symlink(const fs::path& run_folder, const std::string& name,
                   const fs::path& checkpoint) {
  const fs::path link = run_folder / name;
  const fs::path temporary = run_folder / (".tmp-" + name);
  std::error_code error;
  if (fs::exists(fs::symlink_status(link, error)) && !fs::is_symlink(link, error)) {
    throw base::SystemError({.where = link.string(),
                             .what = "cannot point the link at a checkpoint: something else has "
                                     "its name"});
  }
  fs::remove(temporary, error);
  fs::create_directory_symlink(checkpoint.filename(), temporary, error);
  if (error) {
    fail(link, "create the link", error.value());
  }
  fs::rename(temporary, link, error);
  if (error) {
    fail(link, "replace the link", error.value());
  }
}

}  // namespace longhaul::train
