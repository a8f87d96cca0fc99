// How a row's exchanges are cut, known to those who make them and to those who plan their time.
#pragma once

#include <cstdint>

namespace longhaul::config {

/// From this many tokens of a rank on, exchanges through peer memory come in two parts; below, one takes about as long as
/// starting a second.
constexpr std::int64_t kRowsOfTwoParts = 4096;

}  // namespace longhaul::config
