#include "config/exchange_parts.h"

#include <algorithm>
#include <cstdlib>

#include "base/ceil_div.h"

namespace longhaul::config {
namespace {

// Products of thousands of rows run in tiles of this size, as many at once as an H100 or H200 has multiprocessors: a product of 10.2
// waves of tiles takes the time of 11. `build/cuda/cublaslt_products 4096 12288 4352 12032` shows it.
constexpr std::int64_t kTileRows = 256;
constexpr std::int64_t kTileColumns = 128;
constexpr std::int64_t kTilesAtOnce = 132;

std::int64_t waves(std::int64_t rows, std::int64_t columns) {
  const std::int64_t tiles =
      base::ceil_div(rows, kTileRows) * base::ceil_div(columns, kTileColumns);
  return base::ceil_div(tiles, kTilesAtOnce);
}

std::int64_t short_part(std::int64_t tokens, std::int64_t columns) {
  constexpr std::int64_t kSixteenths = 16;
  const std::int64_t quarter = std::max<std::int64_t>(1, tokens / 4);
  std::int64_t best = quarter;
  std::int64_t fewest = 0;  // none found yet
  // A longer part is hidden worse, a shorter one hides less.
  for (std::int64_t rows = base::round_up(3 * tokens / kSixteenths, kTileRows);
       rows <= 5 * tokens / kSixteenths && rows > 0; rows += kTileRows) {
    const std::int64_t count = waves(rows, columns) + waves(tokens - rows, columns);
    const bool is_nearer = std::abs(rows - quarter) < std::abs(best - quarter);
    if (fewest == 0 || count < fewest || (count == fewest && is_nearer)) {
      fewest = count;
      best = rows;
    }
  }
  return best;
}

}  // namespace

std::vector<Range> exchange_parts(std::int64_t tokens, std::int64_t parts, PartOrder order,
                                  std::int64_t columns) {
  if (parts != 2 || tokens < 2) {
    return split_tokens(tokens, parts);
  }
  const std::int64_t rows = short_part(tokens, columns);
  const std::int64_t cut = order == PartOrder::kShortFirst ? rows : tokens - rows;
  return {{0, cut}, {cut, tokens}};
}

}  // namespace longhaul::config
