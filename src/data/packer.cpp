#include "data/packer.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"

namespace longhaul::data {
namespace {

/// Free space of rows, with the leftmost row that has at least so much of it found in O(log n).
class FreeSpaceTree {
 public:
  FreeSpaceTree(std::size_t rows, std::int64_t capacity)
      : leaves_(std::bit_ceil(std::max<std::size_t>(rows, 1))), space_(2 * leaves_, capacity) {}

  /// Takes `size` from the first row that has it (a fresh row always has).
  std::size_t take_first_fit(std::int64_t size) {
    std::size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      if (space_[node] < size) {
        ++node;
      }
    }
    const std::size_t row = node - leaves_;
    space_[node] -= size;
    for (node /= 2; node > 0; node /= 2) {
      space_[node] = std::max(space_[2 * node], space_[2 * node + 1]);
    }
    return row;
  }

 private:
  std::size_t leaves_;
  std::vector<std::int64_t> space_;
};

/// Rows from a row number per sample: rows by first sample, samples by number.
PackedRows collect_rows(const std::vector<std::size_t>& row_of, std::size_t num_rows) {
  constexpr std::size_t kUnseen = SIZE_MAX;
  std::vector<std::size_t> rank(num_rows, kUnseen);
  std::size_t seen = 0;
  PackedRows rows;
  rows.starts.assign(num_rows + 1, 0);
  for (const std::size_t row : row_of) {
    if (rank[row] == kUnseen) {
      rank[row] = seen++;
    }
    ++rows.starts[rank[row] + 1];
  }
  std::partial_sum(rows.starts.begin(), rows.starts.end(), rows.starts.begin());
  std::vector<std::int64_t> next(rows.starts.begin(), rows.starts.end() - 1);
  rows.samples.resize(row_of.size());
  for (std::size_t sample = 0; sample < row_of.size(); ++sample) {
    const auto at = static_cast<std::size_t>(next[rank[row_of[sample]]]++);
    rows.samples[at] = static_cast<std::int64_t>(sample);
  }
  return rows;
}

PackedRows first_fit_decreasing(std::span<const std::int64_t> lengths, std::int64_t capacity) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  FreeSpaceTree tree(lengths.size(), capacity);
  std::vector<std::size_t> row_of(lengths.size());
  std::size_t num_rows = 0;
  for (const std::size_t sample : order) {
    row_of[sample] = tree.take_first_fit(lengths[sample]);
    num_rows = std::max(num_rows, row_of[sample] + 1);
  }
  return collect_rows(row_of, num_rows);
}

PackedRows next_fit(std::span<const std::int64_t> lengths, std::int64_t capacity) {
  PackedRows rows = single_samples(0);
  std::int64_t filled = 0;
  for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
    if (filled > 0 && filled + lengths[sample] > capacity) {
      rows.starts.push_back(static_cast<std::int64_t>(sample));
      filled = 0;
    }
    filled += lengths[sample];
    rows.samples.push_back(static_cast<std::int64_t>(sample));
  }
  if (!lengths.empty()) {
    rows.starts.push_back(static_cast<std::int64_t>(lengths.size()));
  }
  return rows;
}

}  // namespace

std::span<const std::int64_t> PackedRows::row(std::int64_t index) const {
  LONGHAUL_ASSERT(index >= 0 && index < num_rows(), "a row number lies inside its set");
  const auto begin = static_cast<std::size_t>(starts[static_cast<std::size_t>(index)]);
  const auto end = static_cast<std::size_t>(starts[static_cast<std::size_t>(index) + 1]);
  return std::span(samples).subspan(begin, end - begin);
}

PackedRows pack_samples(std::span<const std::int64_t> lengths, std::int64_t capacity,
                        config::PackingStrategy strategy) {
  for (const std::int64_t length : lengths) {
    LONGHAUL_ASSERT(length > 0 && length <= capacity, "a sample fits into a row");
  }
  return strategy == config::PackingStrategy::kBinpack ? first_fit_decreasing(lengths, capacity)
                                                       : next_fit(lengths, capacity);
}

PackedRows single_samples(std::int64_t num_samples) {
  PackedRows rows;
  rows.samples.resize(static_cast<std::size_t>(num_samples));
  std::iota(rows.samples.begin(), rows.samples.end(), std::int64_t{0});
  rows.starts.resize(static_cast<std::size_t>(num_samples) + 1);
  std::iota(rows.starts.begin(), rows.starts.end(), std::int64_t{0});
  return rows;
}

}  // namespace longhaul::data
