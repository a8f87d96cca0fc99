#include "text/length_policy.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace longhaul::text {
namespace {

TokenizedSample part_of(const TokenizedSample& sample, std::size_t begin, std::size_t end) {
  const auto cut = [begin, end](const std::vector<std::int32_t>& values) {
    return std::vector<std::int32_t>(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                     values.begin() + static_cast<std::ptrdiff_t>(end));
  };
  TokenizedSample part{cut(sample.ids), cut(sample.labels)};
  part.labels.front() = kNoLabel;
  return part;
}

}  // namespace

std::vector<TokenizedSample> apply_length_policy(TokenizedSample sample, std::int64_t max_length,
                                                 config::TruncationStrategy strategy) {
  std::vector<TokenizedSample> parts;
  const std::size_t size = sample.ids.size();
  const auto limit = static_cast<std::size_t>(max_length);
  if (max_length <= 0 || size <= limit) {
    parts.push_back(std::move(sample));
    return parts;
  }
  switch (strategy) {
    case config::TruncationStrategy::kDelete:
      break;
    case config::TruncationStrategy::kLeft:
      parts.push_back(part_of(sample, size - limit, size));
      break;
    case config::TruncationStrategy::kRight:
      parts.push_back(part_of(sample, 0, limit));
      break;
    case config::TruncationStrategy::kSplit:
      for (std::size_t begin = 0; begin < size; begin += limit) {
        parts.push_back(part_of(sample, begin, std::min(size, begin + limit)));
      }
      break;
  }
  return parts;
}

}  // namespace longhaul::text
