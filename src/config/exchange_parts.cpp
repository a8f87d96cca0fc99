#include "config/exchange_parts.h"

#include <algorithm>

namespace longhaul::config {

std::vector<Range> exchange_parts(std::int64_t tokens, std::int64_t parts, PartOrder order) {
  if (parts != 2 || tokens < 2) {
    return split_tokens(tokens, parts);
  }
  // Whole tiles of the products' kernels where there are that many rows.
  constexpr std::int64_t kTileRows = 256;
  const std::int64_t quarter = std::max<std::int64_t>(1, tokens / 4);
  const std::int64_t part_rows = quarter < kTileRows ? quarter : quarter / kTileRows * kTileRows;
  const std::int64_t cut = order == PartOrder::kShortFirst ? part_rows : tokens - part_rows;
  return {{0, cut}, {cut, tokens}};
}

}  // namespace longhaul::config
