// Samples → rows of at most `capacity` tokens, without ever splitting a sample. Pure and
// deterministic, so every rank computes the same rows by itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/config.h"

namespace longhaul::data {

/// Rows as slices of one list of sample numbers.
struct PackedRows {
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> starts = {0};  // num_rows() + 1 positions in `samples`

  [[nodiscard]] std::int64_t num_rows() const {
    return static_cast<std::int64_t>(starts.size()) - 1;
  }
  [[nodiscard]] std::span<const std::int64_t> row(std::int64_t index) const;
};

/// Packs samples 0 … lengths.size()−1, each of 1 … capacity tokens.
///
/// kBinpack    first-fit decreasing (equal lengths by number); rows are then ordered by their first
/// sample and
///             samples inside a row by number, so without shuffling the data stay close to file
///             order
/// kSequential a row takes the next samples in order until one does not fit
/// Cost        O(n log n)
PackedRows pack_samples(std::span<const std::int64_t> lengths, std::int64_t capacity,
                        config::PackingStrategy strategy);

/// Every sample is a row of its own (no packing).
PackedRows single_samples(std::int64_t num_samples);

}  // namespace longhaul::data
