#include "data/tokenize_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/ordered_workers.h"
#include "text/length_policy.h"

namespace longhaul::data {
namespace {

using base::OrderedJson;
using base::Problem;
using base::UserError;

/// What became of one row on a worker thread.
struct RowOutcome {
  RowFault fault;
  std::uint64_t columns_seen = 0;
  std::int64_t length = 0;  // before the length policy
  std::vector<text::TokenizedSample> samples;
};

RowOutcome encode_row(std::string_view row_text, const RowConverter& converter,
                      const TokenizeRequest& request, const Encoding& encoding) {
  RowOutcome outcome;
  RowResult row = converter.convert(row_text);
  outcome.columns_seen = row.columns_seen;
  outcome.fault = std::move(row.fault);
  if (!row.conversation) {
    return outcome;
  }
  text::TokenizedSample sample;
  try {
    sample = encoding.encode(*row.conversation);
  } catch (const UserError& error) {
    outcome.fault = {.reason = "the template cannot render the row",
                     .detail = error.problems().front().line()};
    return outcome;
  }
  if (sample.ids.empty()) {
    outcome.fault = {.reason = "no token at all"};
    return outcome;
  }
  outcome.length = static_cast<std::int64_t>(sample.ids.size());
  outcome.samples =
      text::apply_length_policy(std::move(sample), request.max_length, request.truncation);
  return outcome;
}

/// The rows of one source: its files one behind the other.
class SourceRows {
 public:
  explicit SourceRows(const DataSource& source, std::uint32_t first_file)
      : first_file_(first_file) {
    for (const std::filesystem::path& path : source.files) {
      starts_.push_back(count_);
      files_.emplace_back(path);
      count_ += static_cast<std::int64_t>(files_.back().rows().size());
    }
  }

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] const RowFile& file(std::int64_t row) const { return files_[file_index(row)]; }
  [[nodiscard]] const RowRef& ref(std::int64_t row) const {
    const std::size_t index = file_index(row);
    return files_[index].rows()[static_cast<std::size_t>(row - starts_[index])];
  }
  [[nodiscard]] std::string place(std::int64_t row) const { return file(row).place(ref(row)); }
  [[nodiscard]] std::uint32_t file_number(std::int64_t row) const {
    return first_file_ + static_cast<std::uint32_t>(file_index(row));
  }

 private:
  [[nodiscard]] std::size_t file_index(std::int64_t row) const {
    const auto next = std::upper_bound(starts_.begin(), starts_.end(), row);
    return static_cast<std::size_t>(next - starts_.begin()) - 1;
  }

  std::uint32_t first_file_;
  std::vector<RowFile> files_;
  std::vector<std::int64_t> starts_;
  std::int64_t count_ = 0;
};

/// Tells now and then how far the work is.
class Progress {
 public:
  void tick(std::int64_t rows, std::uint64_t tokens) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) {
      return;
    }
    next_ = now + kEvery;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    base::log_line(fmt::format("data: {} rows, {} tokens made ({:.0f} tokens/s)", rows, tokens,
                               static_cast<double>(tokens) / std::max(seconds, 1e-9)));
  }

 private:
  static constexpr std::chrono::seconds kEvery{10};
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_ = start_ + kEvery;
};

/// One pass over the sources.
class Pass {
 public:
  Pass(const TokenizeRequest& request, const Encoding& encoding, StoreWriter& writer)
      : request_(request), encoding_(encoding), writer_(writer) {}

  StoreMeta run() {
    for (std::size_t i = 0; i < request_.sources.size(); ++i) {
      add_source(request_.sources[i], i);
    }
    return std::move(meta_);
  }

 private:
  void add_source(const DataSource& source, std::size_t number) {
    const SourceRows rows(source, static_cast<std::uint32_t>(meta_.files.size()));
    for (const std::filesystem::path& path : source.files) {
      meta_.files.push_back(path.string());
    }
    if (rows.count() == 0) {
      throw UserError(Problem{.where = source.files.front().string(),
                              .what = "the data set holds no row",
                              .hint = "Write one JSON object per line"});
    }
    const RowConverter converter(source.format);
    columns_seen_ = 0;
    const std::int64_t wanted = source.take.value_or(std::numeric_limits<std::int64_t>::max());
    std::vector<bool> bad(static_cast<std::size_t>(rows.count()));
    std::int64_t taken = 0;
    for (std::uint64_t round = 0; taken < wanted; ++round) {
      const auto order = round_order(source, rows.count(), number, round, bad);
      taken += add_round(rows, order, converter, {wanted - taken, round > 0}, bad);
      if (!source.take || taken == 0) {
        break;
      }
    }
    note_columns(source.format);
  }

  /// Rows of one round over a source; rounds behind the first skip the bad rows.
  [[nodiscard]] std::vector<std::int64_t> round_order(const DataSource& source, std::int64_t count,
                                                      std::size_t number, std::uint64_t round,
                                                      const std::vector<bool>& bad) const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    if (source.take && request_.sample_seed) {
      const std::uint64_t stream = (static_cast<std::uint64_t>(number) << 32U) | round;
      order = base::permutation(
          count, base::CounterRng(*request_.sample_seed, base::RngPurpose::kSubsample, stream));
    }
    if (round > 0) {
      std::erase_if(order, [&bad](std::int64_t row) { return bad[static_cast<std::size_t>(row)]; });
    }
    return order;
  }

  struct Round {
    std::int64_t wanted = 0;
    bool repeats = false;
  };

  std::int64_t add_round(const SourceRows& rows, const std::vector<std::int64_t>& order,
                         const RowConverter& converter, Round round, std::vector<bool>& bad) {
    std::int64_t taken = 0;
    OrderedWorkers<RowOutcome>::run(
        static_cast<std::int64_t>(order.size()), request_.threads,
        [&](std::int64_t i) {
          const std::int64_t row = order[static_cast<std::size_t>(i)];
          return encode_row(rows.file(row).text(rows.ref(row)), converter, request_, encoding_);
        },
        [&](std::int64_t i, RowOutcome&& outcome) {
          const std::int64_t row = order[static_cast<std::size_t>(i)];
          meta_.report.rows_read += round.repeats ? 0 : 1;
          columns_seen_ |= outcome.columns_seen;
          if (outcome.fault.ok()) {
            keep(rows, row, outcome, round.repeats);
            ++taken;
          } else {
            bad[static_cast<std::size_t>(row)] = true;
            drop(outcome.fault, rows.place(row));
          }
          progress_.tick(meta_.report.rows_read, writer_.num_tokens());
          return taken < round.wanted;
        });
    return taken;
  }

  void keep(const SourceRows& rows, std::int64_t row, const RowOutcome& outcome, bool repeated) {
    RowReport& report = meta_.report;
    ++report.rows_well_formed;
    report.rows_repeated += repeated ? 1 : 0;
    report.rows_too_long += outcome.samples.empty() ? 1 : 0;
    report.rows_shortened +=
        !outcome.samples.empty() && outcome.length > request_.max_length ? 1 : 0;
    if (outcome.length > report.longest_row) {
      report.longest_row = outcome.length;
      report.longest_place = rows.place(row);
    }
    const auto has_target = [](const text::TokenizedSample& sample) {
      return std::any_of(sample.labels.begin(), sample.labels.end(),
                         [](std::int32_t label) { return label != text::kNoLabel; });
    };
    const bool targets = std::any_of(outcome.samples.begin(), outcome.samples.end(), has_target);
    report.rows_without_targets += !outcome.samples.empty() && !targets ? 1 : 0;
    writer_.add_row(rows.file_number(row), rows.ref(row), outcome.samples);
  }

  void drop(const RowFault& fault, const std::string& place) {
    if (request_.strict) {
      throw UserError(Problem{.where = place,
                              .what = fault.detail.empty()
                                          ? fault.reason
                                          : fmt::format("{}: {}", fault.reason, fault.detail),
                              .hint = "Mend this row, or drop bad rows with --strict false"});
    }
    meta_.report.add_fault(fault, place);
  }

  void note_columns(const RowFormat& format) {
    std::uint64_t bit = 1;
    for (const auto& [column, name] : format.columns) {
      std::vector<std::string>& found = meta_.report.columns_found;
      if ((columns_seen_ & bit) != 0 &&
          std::find(found.begin(), found.end(), column) == found.end()) {
        found.push_back(column);
      }
      bit <<= 1U;
    }
  }

  const TokenizeRequest& request_;
  const Encoding& encoding_;
  StoreWriter& writer_;
  StoreMeta meta_;
  Progress progress_;
  std::uint64_t columns_seen_ = 0;
};

OrderedJson format_json(const RowFormat& format) {
  return {{"columns", format.columns},
          {"role_key", format.role_key},
          {"content_key", format.content_key},
          {"user_role", format.user_role},
          {"assistant_role", format.assistant_role},
          {"system_role", format.system_role},
          {"pretraining", format.pretraining}};
}

OrderedJson source_json(const DataSource& source, std::optional<std::uint64_t> sample_seed) {
  OrderedJson files = OrderedJson::array();
  for (const std::filesystem::path& path : source.files) {
    // The checksum first: a missing file is then named as such.
    const std::string checksum = base::checksum_file(path);
    files.push_back({{"path", path.string()},
                     {"bytes", std::filesystem::file_size(path)},
                     {"checksum", checksum}});
  }
  OrderedJson json = {{"files", files}, {"format", format_json(source.format)}};
  if (source.take) {
    json["take"] = *source.take;
    json["sample_seed"] = sample_seed ? OrderedJson(*sample_seed) : OrderedJson(nullptr);
  }
  return json;
}

}  // namespace

Encoding encoding_of(const text::SampleEncoder& encoder) {
  return {.identity = encoder.identity(),
          .encode = [&encoder](const text::Conversation& conversation) {
            return encoder.encode(conversation);
          }};
}

std::string tokenize_key(const TokenizeRequest& request, const Encoding& encoding) {
  OrderedJson sources = OrderedJson::array();
  for (const DataSource& source : request.sources) {
    sources.push_back(source_json(source, request.sample_seed));
  }
  const OrderedJson key = {
      {"store_version", kStoreVersion},   {"encoding", encoding.identity},
      {"max_length", request.max_length}, {"truncation", static_cast<int>(request.truncation)},
      {"strict", request.strict},         {"sources", sources}};
  return key.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

StoreMeta tokenize_set(const TokenizeRequest& request, const Encoding& encoding,
                       StoreWriter& writer) {
  return Pass(request, encoding, writer).run();
}

}  // namespace longhaul::data
