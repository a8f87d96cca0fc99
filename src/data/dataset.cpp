#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/row_reader.h"
#include "data/store_cache.h"

namespace longhaul::data {
namespace {

using base::Problem;
using base::UserError;

/// Indices of rows in the order in which a set uses them.
using RowOrder = std::vector<std::int64_t>;

TokenizeRequest make_request(const config::Config& config, const std::string& option,
                             std::vector<DataSource> sources) {
  TokenizeRequest request;
  request.option = option;
  request.sources = std::move(sources);
  request.max_length = sample_limit(config);
  request.truncation = config.data.truncation_strategy;
  request.strict = config.data.strict;
  request.threads = config.data.dataset_num_proc;
  // The validation set is never shuffled, so its #N means the first N rows.
  if (config.data.dataset_shuffle && option == "--dataset") {
    request.sample_seed = static_cast<std::uint64_t>(config.data.data_seed);
  }
  return request;
}

std::shared_ptr<const StoreFile> open_store(const config::Config& config,
                                            const TokenizeRequest& request,
                                            const Encoding& encoding,
                                            const DataEnvironment& environment) {
  CacheRequest cache;
  cache.folder = config.data.cache_dir.empty() ? environment.cache_dir
                                               : std::filesystem::path(config.data.cache_dir);
  cache.key = tokenize_key(request, encoding);
  cache.builds_first = config.launch.rank == 0;
  return open_or_build(
      cache, [&](StoreWriter& writer) { return tokenize_set(request, encoding, writer); });
}

/// A set that cannot train is the user's to mend, and its counters say why.
void check_usable(const TokenStore& store, const std::string& option, std::int64_t max_length) {
  const RowReport& report = store.file().meta().report;
  if (store.size() == 0) {
    Problem problem{.where = option, .what = "no row is left to use"};
    if (report.rows_too_long > 0) {
      problem.what +=
          fmt::format(", {} rows are longer than {} tokens (longest: {}, {})", report.rows_too_long,
                      max_length, report.longest_row, report.longest_place);
      problem.hint = "Raise --max_length, or shorten rows with --truncation_strategy right";
    }
    for (const DropCount& count : report.dropped) {
      problem.what +=
          fmt::format(", {} dropped: {} ({}{}{})", count.rows, count.reason, count.first_place,
                      count.first_detail.empty() ? "" : ": ", count.first_detail);
    }
    if (problem.hint.empty()) {
      problem.hint =
          "A row is one JSON object on one line (or an element of one JSON array) with "
          "messages, query and response, or instruction and output";
    }
    throw UserError(std::move(problem));
  }
  if (store.total_targets() == 0) {
    throw UserError(Problem{
        .where = option,
        .what = fmt::format("no row has a target token, so there is nothing to learn ({} rows, {} "
                            "tokens, first row: {})",
                            store.size(), store.total_tokens(), store.origin(0)),
        .hint = "Check that rows have answers and that --max_length and --truncation_strategy "
                "leave them in"});
  }
}

void check_columns(const std::vector<DataSource>& sources,
                   const std::vector<const RowReport*>& reports) {
  std::set<std::string> missing;
  for (const DataSource& source : sources) {
    for (const auto& [column, name] : source.format.columns) {
      missing.insert(column);
    }
  }
  for (const RowReport* report : reports) {
    for (const std::string& column : report->columns_found) {
      missing.erase(column);
    }
  }
  std::vector<Problem> problems;
  problems.reserve(missing.size());
  for (const std::string& column : missing) {
    problems.push_back({.where = "--columns", .what = "no row has this column", .got = column});
  }
  if (!problems.empty()) {
    throw UserError(std::move(problems));
  }
}

/// Samples of rows, row by row.
std::vector<std::int64_t> samples_of(const StoreFile& file, const RowOrder& rows) {
  std::vector<std::int64_t> samples;
  for (const std::int64_t index : rows) {
    const RowRecord& row = file.rows()[static_cast<std::size_t>(index)];
    for (std::uint32_t i = 0; i < row.num_samples; ++i) {
      samples.push_back(static_cast<std::int64_t>(row.first_sample + i));
    }
  }
  return samples;
}

RowOrder all_rows(const StoreFile& file) {
  RowOrder rows(file.rows().size());
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return rows;
}

base::CounterRng rng_for(const config::Config& config, base::RngPurpose purpose) {
  return {static_cast<std::uint64_t>(config.data.data_seed), purpose};
}

/// Takes the validation rows out of `rows`.
RowOrder split_off(const config::Config& config, RowOrder& rows) {
  const auto total = static_cast<std::int64_t>(rows.size());
  const auto wanted = static_cast<std::int64_t>(
      std::floor(config.data.split_dataset_ratio * static_cast<double>(total)));
  const std::int64_t count = std::max<std::int64_t>(1, wanted);
  if (count >= total) {
    throw UserError(Problem{
        .where = "--split_dataset_ratio",
        .what =
            fmt::format("the split takes {} of {} rows and leaves nothing to train", count, total),
        .hint = "Lower it, or give a --val_dataset"});
  }
  RowOrder taken(rows.end() - count, rows.end());
  if (config.data.dataset_shuffle) {
    taken = base::permutation(total, rng_for(config, base::RngPurpose::kSplit));
    taken.resize(static_cast<std::size_t>(count));
    std::sort(taken.begin(), taken.end());
  }
  std::erase_if(rows, [&taken](std::int64_t row) {
    return std::binary_search(taken.begin(), taken.end(), row);
  });
  return taken;
}

void shuffle(const config::Config& config, RowOrder& rows) {
  const auto order = base::permutation(static_cast<std::int64_t>(rows.size()),
                                       rng_for(config, base::RngPurpose::kShuffleData));
  RowOrder shuffled;
  shuffled.reserve(rows.size());
  for (const std::int64_t at : order) {
    shuffled.push_back(rows[static_cast<std::size_t>(at)]);
  }
  rows = std::move(shuffled);
}

/// Contents of the sources without their paths, so that a moved file is still the same data.
std::string content_of(const StoreFile& file) {
  const auto key = base::OrderedJson::parse(file.meta().key);
  std::string text = fmt::format("{} {} {}", key.at("encoding").dump(), key.at("max_length").dump(),
                                 key.at("truncation").dump());
  for (const auto& source : key.at("sources")) {
    for (const auto& entry : source.at("files")) {
      text += " " + entry.at("checksum").get<std::string>();
    }
    text += source.at("format").dump() + source.value("take", base::OrderedJson()).dump();
  }
  return text;
}

std::string make_fingerprint(const config::Config& config, const StoreFile& train,
                             const StoreFile* validation) {
  std::string text = content_of(train) + (validation == nullptr ? "" : content_of(*validation));
  text += fmt::format(" split {} shuffle {} seed {}", config.data.split_dataset_ratio,
                      config.data.dataset_shuffle, config.data.data_seed);
  return base::checksum_text(text);
}

void check_split_options(const config::Config& config) {
  if (config.data.split_dataset_ratio > 0 && !config.data.val_dataset.empty()) {
    throw UserError(Problem{.where = "--split_dataset_ratio",
                            .what = "cannot be combined with --val_dataset",
                            .hint = "Leave one of them out"});
  }
}

}  // namespace

std::int64_t sample_limit(const config::Config& config) {
  return config.data.packing ? std::min(config.max_length, config.row_length) : config.max_length;
}

Datasets load_datasets(const config::Config& config, const Encoding& encoding,
                       const DataEnvironment& environment) {
  check_split_options(config);
  DatasetPlaces places = environment.places;
  places.custom_dataset_info = config.data.custom_dataset_info;
  const bool pretraining = !config.model.use_chat_template;
  auto sources =
      resolve_datasets(config.data.dataset, "--dataset", places, config.data.columns, pretraining);
  if (sources.empty()) {
    throw UserError(Problem{.where = "--dataset", .what = "no data set is given"});
  }
  auto validation_sources = resolve_datasets(config.data.val_dataset, "--val_dataset", places,
                                             config.data.columns, pretraining);

  const TokenizeRequest train_request = make_request(config, "--dataset", sources);
  const auto train = open_store(config, train_request, encoding, environment);
  std::shared_ptr<const StoreFile> validation;
  std::vector<const RowReport*> reports = {&train->meta().report};
  if (!validation_sources.empty()) {
    validation = open_store(config, make_request(config, "--val_dataset", validation_sources),
                            encoding, environment);
    reports.push_back(&validation->meta().report);
    sources.insert(sources.end(), validation_sources.begin(), validation_sources.end());
  }
  check_columns(sources, reports);

  RowOrder rows = all_rows(*train);
  const bool split = config.data.split_dataset_ratio > 0 && !rows.empty();
  RowOrder split_rows = split ? split_off(config, rows) : RowOrder{};
  if (config.data.dataset_shuffle) {
    shuffle(config, rows);
  }
  Datasets datasets{.train = TokenStore(train, samples_of(*train, rows)),
                    .validation = std::nullopt,
                    .report = {},
                    .split_rows = std::move(split_rows)};
  check_usable(datasets.train, "--dataset", train_request.max_length);
  datasets.report.max_length = train_request.max_length;
  datasets.report.train_rows = train->meta().report;
  datasets.report.split = split;
  datasets.report.fingerprint = make_fingerprint(config, *train, validation.get());
  if (split) {
    datasets.validation.emplace(train, samples_of(*train, datasets.split_rows));
    check_usable(*datasets.validation, "--split_dataset_ratio", train_request.max_length);
  } else if (validation != nullptr) {
    datasets.validation.emplace(validation, samples_of(*validation, all_rows(*validation)));
    datasets.report.validation_rows = validation->meta().report;
    check_usable(*datasets.validation, "--val_dataset", train_request.max_length);
  }
  return datasets;
}

std::vector<std::string> DatasetReport::lines() const {
  std::vector<std::string> lines = report_lines("data", train_rows, max_length);
  if (validation_rows) {
    for (std::string& line : report_lines("validation data", *validation_rows, max_length)) {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

void write_split_rows(const Datasets& datasets, const std::filesystem::path& file) {
  const StoreFile& store = datasets.train.file();
  std::map<std::uint32_t, base::MappedFile> sources;
  std::string text;
  for (const std::int64_t index : datasets.split_rows) {
    const RowRecord& row = store.rows()[static_cast<std::size_t>(index)];
    auto found = sources.find(row.file);
    if (found == sources.end()) {
      found = sources.emplace(row.file, base::MappedFile(store.meta().files[row.file])).first;
    }
    std::string line(found->second.text().substr(row.offset, row.bytes));
    // JSON has line breaks only between its parts, where any white space means the same.
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    text += line + "\n";
  }
  base::write_file_atomically(file, text);
}

}  // namespace longhaul::data
