// How a row's exchanges are cut, known to those who make them and to those who plan their time.
#pragma once

#include <cstdint>
#include <vector>

#include "config/shapes.h"

namespace longhaul::config {

/// From this many tokens of a rank on, exchanges through peer memory come in two parts; below, one takes about as long as
/// starting a second.
constexpr std::int64_t kRowsOfTwoParts = 4096;

/// Which of two parts is the short one. What is sent travels while the next part is made, so no part hides the last;
/// what is received travels while the part before is used, so none hides the first.
enum class PartOrder { kLongFirst, kShortFirst };

/// `tokens` of a rank in consecutive parts. Two: about three quarters and one, cut where the products that make or take them, `columns`
/// wide, leave the fewest multiprocessors of a GPU idle; another number: as even as possible.
std::vector<Range> exchange_parts(std::int64_t tokens, std::int64_t parts, PartOrder order,
                                  std::int64_t columns);

}  // namespace longhaul::config
