// Finds the token store of a run in the cache folder or has it built by exactly one process while
// the others wait for the file: no collective, no time-out. A builder that dies loses its lock, and
// a waiting process takes over.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "data/store_writer.h"
#include "data/token_store.h"

namespace longhaul::data {

struct CacheRequest {
  std::filesystem::path folder;
  std::string key;  // everything that the tokens depend on
  /// The process that should build when nothing stops it. Others first give it a short time to
  /// start, so that its progress lines are the ones that are shown.
  bool builds_first = true;
};

/// Fills the writer and returns the description (its key is set here); may throw.
using BuildStore = std::function<StoreMeta(StoreWriter&)>;

/// The verified store for `request.key`, built now if need be. A damaged file is rebuilt, saying
/// so. SystemError with the hint --cache_dir when the folder cannot be written.
std::shared_ptr<const StoreFile> open_or_build(const CacheRequest& request,
                                               const BuildStore& build);

/// The file that holds the store for `key`.
std::filesystem::path store_path(const std::filesystem::path& folder, const std::string& key);

}  // namespace longhaul::data
