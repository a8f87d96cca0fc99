// `longhaul data`: what training will see. Results go to standard output, notices to standard error (main.cpp installs
// the sink).
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/data_environment.h"
#include "cli/print.h"
#include "config/model_config.h"
#include "data/dataset.h"
#include "data/packer.h"
#include "data/schedule.h"
#include "data/statistics.h"
#include "data/token_dump.h"
#include "text/tokenizer.h"
#include "train/run_setup.h"

namespace longhaul::cli {
namespace {

void print_line(const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() ||
      std::fputc('\n', stdout) == EOF) {
    fail_output();
  }
}

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    print_line(line);
  }
}

int tokenize_file(const config::Config& config) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(config.model.model);
  const std::string& file = config.data_command.tokenize;
  if (!config.data.dataset.empty() || !config.data.val_dataset.empty()) {
    base::log_line("--tokenize reads its own file; the data sets are not looked at");
  }
  const std::string text = base::read_file(file);
  data::tokenize_lines(
      text, file, [&tokenizer](std::string_view line) { return tokenizer.encode(line); },
      print_line);
  flush_output();
  return 0;
}

std::vector<std::string> pack_lines(const data::TokenStore& train, const config::Config& config) {
  config::Config one_step = config;
  one_step.accumulation = 1;
  const data::TrainSchedule schedule(train, one_step);
  return data::statistics_lines(data::pack_statistics(train, schedule.rows(), config.row_length));
}

void print_statistics(const data::Datasets& datasets, const train::TextSetup& text,
                      const config::Config& config) {
  print_line(fmt::format("template: {}{}", text.template_name,
                         text.chosen_by.empty() ? "" : " (" + text.chosen_by + ")"));
  print_lines(datasets.report.lines());
  print_lines(data::statistics_lines("train", data::length_statistics(datasets.train)));
  if (datasets.validation) {
    print_lines(
        data::statistics_lines("validation", data::length_statistics(*datasets.validation)));
  }
  if (config.data.packing) {
    print_lines(pack_lines(datasets.train, config));
  }
  const text::Tokenizer& tokenizer = text.encoder->tokenizer();
  print_lines(data::sample_lines(
      datasets.train, 0, [&tokenizer](const auto& ids) { return tokenizer.decode(ids, false); }));
}

}  // namespace

int run_data(const config::Config& config) {
  if (!config.data_command.tokenize.empty()) {
    return tokenize_file(config);
  }
  const train::TextSetup text =
      train::make_text_setup(config, config::read_model_config(config.model.model));
  const data::Datasets datasets =
      data::load_datasets(config, data::encoding_of(*text.encoder), data_environment(config));
  if (!config.data_command.dump_tokens.empty()) {
    data::dump_tokens(datasets.train, config.data_command.dump_tokens);
    base::log_line(fmt::format("{} samples written to {}", datasets.train.size(),
                               config.data_command.dump_tokens));
  }
  print_statistics(datasets, text, config);
  flush_output();
  return 0;
}

}  // namespace longhaul::cli
