#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace longhaul::base {

/// Whether `name` is one of `names`.
template <std::size_t kSize>
bool contains(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace longhaul::base
