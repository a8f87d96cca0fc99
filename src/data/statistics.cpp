#include "data/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"

namespace longhaul::data {
namespace {

/// Nearest-rank quantile of sorted values.
std::int64_t quantile(const std::vector<std::int64_t>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

/// Text as a JSON string, so that white space and special tokens are visible; invalid bytes are
/// replaced.
std::string quoted(const std::string& text) {
  return base::OrderedJson(text).dump(-1, ' ', false, base::OrderedJson::error_handler_t::replace);
}

std::string run_line(const std::vector<std::int32_t>& ids, bool target,
                     const std::function<std::string(const std::vector<std::int32_t>&)>& decode) {
  constexpr std::size_t kEnds = 60;  // tokens shown at either end of a long run
  const std::string head =
      fmt::format("  {} {:>7} tokens  ", target ? "target" : "input ", ids.size());
  if (ids.size() <= 2 * kEnds) {
    return head + quoted(decode(ids));
  }
  const std::vector<std::int32_t> first(ids.begin(), ids.begin() + kEnds);
  const std::vector<std::int32_t> last(ids.end() - kEnds, ids.end());
  return fmt::format("{}{} … {} tokens … {}", head, quoted(decode(first)), ids.size() - 2 * kEnds,
                     quoted(decode(last)));
}

}  // namespace

LengthStatistics length_statistics(const TokenStore& store) {
  LengthStatistics numbers;
  numbers.samples = store.size();
  numbers.tokens = store.total_tokens();
  numbers.targets = store.total_targets();
  if (store.size() == 0) {
    return numbers;
  }
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(store.size()));
  for (std::int64_t i = 0; i < store.size(); ++i) {
    lengths[static_cast<std::size_t>(i)] = store.length(i);
  }
  std::sort(lengths.begin(), lengths.end());
  numbers.shortest = lengths.front();
  numbers.quartile1 = quantile(lengths, 0.25);
  numbers.median = quantile(lengths, 0.5);
  numbers.quartile3 = quantile(lengths, 0.75);
  numbers.percentile95 = quantile(lengths, 0.95);
  numbers.longest = lengths.back();
  return numbers;
}

PackStatistics pack_statistics(const TokenStore& store, const PackedRows& rows,
                               std::int64_t capacity) {
  PackStatistics numbers{.rows = rows.num_rows(), .capacity = capacity};
  if (rows.num_rows() == 0) {
    return numbers;
  }
  std::int64_t fewest_tokens = std::numeric_limits<std::int64_t>::max();
  numbers.fewest_samples = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t row = 0; row < rows.num_rows(); ++row) {
    std::int64_t tokens = 0;
    for (const std::int64_t sample : rows.row(row)) {
      tokens += store.length(sample);
    }
    const auto samples = static_cast<std::int64_t>(rows.row(row).size());
    fewest_tokens = std::min(fewest_tokens, tokens);
    numbers.fewest_samples = std::min(numbers.fewest_samples, samples);
    numbers.most_samples = std::max(numbers.most_samples, samples);
  }
  const auto size = static_cast<double>(capacity);
  numbers.fill =
      static_cast<double>(store.total_tokens()) / (size * static_cast<double>(rows.num_rows()));
  numbers.lowest_fill = static_cast<double>(fewest_tokens) / size;
  return numbers;
}

std::vector<std::string> statistics_lines(const std::string& name,
                                          const LengthStatistics& numbers) {
  const double share = numbers.tokens == 0 ? 0.0
                                           : 100.0 * static_cast<double>(numbers.targets) /
                                                 static_cast<double>(numbers.tokens);
  return {fmt::format("{}: {} samples, {} tokens, {} targets ({:.1f} %)", name, numbers.samples,
                      numbers.tokens, numbers.targets, share),
          fmt::format("{}: tokens per sample: shortest {}, 25 % {}, median {}, 75 % {}, 95 % {}, "
                      "longest {}",
                      name, numbers.shortest, numbers.quartile1, numbers.median, numbers.quartile3,
                      numbers.percentile95, numbers.longest)};
}

std::vector<std::string> statistics_lines(const PackStatistics& numbers) {
  return {
      fmt::format("packs: {} rows of at most {} tokens, {:.1f} % full (emptiest {:.1f} %), {} "
                  "to {} samples each",
                  numbers.rows, numbers.capacity, 100.0 * numbers.fill, 100.0 * numbers.lowest_fill,
                  numbers.fewest_samples, numbers.most_samples)};
}

std::vector<std::string> sample_lines(
    const TokenStore& store, std::int64_t sample,
    const std::function<std::string(const std::vector<std::int32_t>&)>& decode) {
  const text::TokenizedSample tokens = store.read(sample);
  std::vector<std::string> lines = {fmt::format("sample {} ({}): {} tokens, {} targets", sample,
                                                store.origin(sample), store.length(sample),
                                                store.num_targets(sample))};
  std::vector<std::int32_t> run;
  bool run_is_target = false;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    const bool target = tokens.labels[i] != text::kNoLabel;
    if (target != run_is_target && !run.empty()) {
      lines.push_back(run_line(run, run_is_target, decode));
      run.clear();
    }
    run_is_target = target;
    run.push_back(tokens.ids[i]);
  }
  lines.push_back(run_line(run, run_is_target, decode));
  return lines;
}

}  // namespace longhaul::data
