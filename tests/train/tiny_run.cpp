#include "train/tiny_run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <sstream>

#include "base/rng.h"
#include "config/options.h"
#include "config/validate.h"
#include "infer/tiny_folder.h"
#include "model/tiny_models.h"

namespace longhaul::testing {

namespace fs = std::filesystem;

TinyRun::TinyRun(const std::string& model_name, base::Dtype dtype)
    : model_(tiny_model(model_name)) {
  at::set_num_threads(1);  // rows this small only wait for other threads
  const config::LoraSpec lora = tiny_lora(model_);
  write_model_folder(path("model"), model_, tiny_parameters(model_, lora), dtype);
  write_rows("train.jsonl", 10, 1);
}

fs::path TinyRun::write_rows(const std::string& name, int count, std::uint64_t seed) const {
  const base::CounterRng rng(seed, base::RngPurpose::kSampling);
  std::uint64_t draw = 0;
  const auto text = [&] {
    std::string letters;
    const std::uint64_t length = 2 + rng.below(draw++, 12);
    for (std::uint64_t i = 0; i < length; ++i) {
      letters += static_cast<char>('a' + static_cast<char>(rng.below(draw++, 20)));
    }
    return letters;
  };
  std::string rows;
  for (int row = 0; row < count; ++row) {
    const base::OrderedJson json = {{"query", text()}, {"response", text()}};
    rows += json.dump() + "\n";
  }
  test::put_file(path(name), rows);
  return path(name);
}

Words TinyRun::words(const std::string& output, const Words& extra) const {
  Words all = {"--model",         path("model").string(),
               "--dataset",       path("train.jsonl").string(),
               "--output_dir",    path(output).string(),
               "--cache_dir",     path("cache").string(),
               "--add_version",   "false",
               "--template",      "chatml",
               "--max_length",    "100",
               "--device",        "cpu",
               "--logging_steps", "1",
               "--report_to",     "none"};
  // Later values win: the tests may give any of these again.
  all.insert(all.end(), extra.begin(), extra.end());
  return all;
}

config::Config TinyRun::config(const std::string& output, const Words& extra) const {
  const Words all = words(output, extra);
  return config::load_config(config::parse_options(config::Command::kSft, all), {});
}

train::RunResult TinyRun::train(const std::string& output, const Words& extra) {
  lines.clear();
  calls.clear();
  std::int64_t current = 0;
  train::RunSurroundings surroundings;
  surroundings.data.cache_dir = path("cache");
  surroundings.data.places.here = path("");
  surroundings.hooks = {
      .stop_signal =
          [&] { return std::int64_t{current == interrupt_in_step && current > 0 ? 2 : 0}; },
      .step_begins =
          [&](std::int64_t step) {
            current = step;
            calls.push_back("begin " + std::to_string(step));
          },
      .step_ended = [&](std::int64_t step) { calls.push_back("end " + std::to_string(step)); },
      .activity = [&](const std::string& activity) { calls.push_back(activity); },
      .say = [&](const std::string& line) { lines.push_back(line); }};
  return train::run_training(config(output, extra), surroundings);
}

std::vector<base::OrderedJson> TinyRun::log(const std::string& output) const {
  std::vector<base::OrderedJson> records;
  std::istringstream text(test::get_file(path(output) / "logging.jsonl"));
  for (std::string line; std::getline(text, line);) {
    records.push_back(base::parse_ordered_json(line, "logging.jsonl"));
  }
  return records;
}

std::vector<std::pair<std::string, std::string>> TinyRun::files(const fs::path& folder,
                                                                const Words& without) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() &&
        std::find(without.begin(), without.end(), name) == without.end()) {
      found.emplace_back(name, test::get_file(entry.path()));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace longhaul::testing
