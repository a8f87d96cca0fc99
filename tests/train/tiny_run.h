// Whole training runs of a tiny model in a folder that disappears with the test: model folder, rows
// of random words, options as on the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "base/scratch.h"
#include "config/config.h"
#include "config/model_config.h"
#include "train/run.h"

namespace longhaul::testing {

using Words = std::vector<std::string>;

class TinyRun {
 public:
  /// Writes the model folder of a tiny model ("llama", "smol", …) and 10 training rows.
  explicit TinyRun(const std::string& model_name = "llama",
                   base::Dtype dtype = base::Dtype::kFloat32);

  [[nodiscard]] const config::ModelConfig& model() const { return model_; }
  [[nodiscard]] std::filesystem::path path(const std::string& name) const {
    return scratch_ / name;
  }
  /// JSONL of `count` question-and-answer rows.
  std::filesystem::path write_rows(const std::string& name, int count, std::uint64_t seed) const;

  /// The options of a run into folder `output` (no version): those that every test shares, then
  /// `extra`.
  [[nodiscard]] Words words(const std::string& output, const Words& extra = {}) const;
  /// Parsed and resolved for one rank.
  [[nodiscard]] config::Config config(const std::string& output, const Words& extra = {}) const;
  /// Trains in this process. What was said to people is in `lines` afterwards, calls of the loop's
  /// hooks in `calls`.
  train::RunResult train(const std::string& output, const Words& extra = {});

  std::vector<std::string> lines;
  std::vector<std::string> calls;
  /// The stop signal that the rank sees during this step (from 1); 0: never.
  std::int64_t interrupt_in_step = 0;

  /// Lines of logging.jsonl.
  [[nodiscard]] std::vector<base::OrderedJson> log(const std::string& output) const;
  /// Every file of a folder with its bytes, by name; those called in `without` left out.
  static std::vector<std::pair<std::string, std::string>> files(const std::filesystem::path& folder,
                                                                const Words& without = {});

 private:
  test::ScratchFolder scratch_;
  config::ModelConfig model_;
};

}  // namespace longhaul::testing
