// Numbers about a tokenised set for `longhaul data`: lengths, targets, packed rows and how full
// they are, one sample shown token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/packer.h"
#include "data/token_store.h"

namespace longhaul::data {

/// Lengths of samples at some quantiles (nearest rank) and in sum.
struct LengthStatistics {
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t targets = 0;
  std::int64_t shortest = 0;
  std::int64_t quartile1 = 0;
  std::int64_t median = 0;
  std::int64_t quartile3 = 0;
  std::int64_t percentile95 = 0;
  std::int64_t longest = 0;
};

LengthStatistics length_statistics(const TokenStore& store);

/// Rows of a packing: how many, how full.
struct PackStatistics {
  std::int64_t rows = 0;
  std::int64_t capacity = 0;
  double fill = 0;  // share of rows·capacity that holds tokens
  double lowest_fill = 0;
  std::int64_t fewest_samples = 0;  // in one row
  std::int64_t most_samples = 0;
};

PackStatistics pack_statistics(const TokenStore& store, const PackedRows& rows,
                               std::int64_t capacity);

/// For people, a few lines.
std::vector<std::string> statistics_lines(const std::string& name, const LengthStatistics& numbers);
std::vector<std::string> statistics_lines(const PackStatistics& numbers);

/// A sample as alternating runs of `input` and `target` tokens with their text; long runs are
/// shortened in the middle.
std::vector<std::string> sample_lines(
    const TokenStore& store, std::int64_t sample,
    const std::function<std::string(const std::vector<std::int32_t>&)>& decode);

}  // namespace longhaul::data
