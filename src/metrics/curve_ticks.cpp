// The arithmetic of curves.h: where ticks stand, what they say, and smoothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "metrics/curves.h"

namespace longhaul::metrics {
namespace {

/// The smallest of 1, 2, 5 × 10^k that is at least `rough`.
double nice_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      return factor * power;
    }
  }
  return 10 * power;
}

/// 2e-05 → 2e-5, 1e+06 → 1e6.
std::string short_exponent(std::string text) {
  const auto at = text.find('e');
  if (at == std::string::npos) {
    return text;
  }
  std::string exponent = text.substr(at + 1);
  std::string sign = exponent.front() == '-' ? "-" : "";
  exponent.erase(0, std::min(exponent.find_first_not_of("+-0"), exponent.size() - 1));
  return text.substr(0, at + 1) + sign + exponent;
}

bool all_different(const std::vector<std::string>& texts) {
  return std::adjacent_find(texts.begin(), texts.end()) == texts.end();
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, int max_ticks) {
  if (!(high > low) || max_ticks < 2) {
    return {low};
  }
  const double step = nice_step((high - low) / (max_ticks - 1));
  if (!std::isnormal(step)) {
    return {low};
  }
  const double slack = 1e-9 * (high - low);
  const double first = std::ceil((low - slack) / step);
  std::vector<double> ticks;
  for (int i = 0; i < max_ticks && (first + i) * step <= high + slack; ++i) {
    ticks.push_back(first + i == 0 ? 0.0 : (first + i) * step);
  }
  return ticks;
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  double largest = 0;
  for (const double tick : ticks) {
    largest = std::max(largest, std::abs(tick));
  }
  constexpr double kTooSmall = 1e-3;
  constexpr double kTooLarge = 1e6;
  constexpr int kMostDigits = 12;
  const bool scientific = largest != 0 && (largest < kTooSmall || largest >= kTooLarge);
  std::vector<std::string> texts;
  for (int digits = 0; digits <= kMostDigits; ++digits) {
    texts.clear();
    bool exact = true;
    for (const double tick : ticks) {
      std::string text =
          fmt::format(fmt::runtime(scientific ? "{:.{}e}" : "{:.{}f}"), tick, digits);
      exact = exact && std::abs(std::strtod(text.c_str(), nullptr) - tick) <= 1e-6 * largest;
      texts.push_back(tick == 0 ? "0" : short_exponent(std::move(text)));
    }
    if (exact && all_different(texts)) {
      break;
    }
  }
  return texts;
}

std::vector<CurvePoint> smoothed(const std::vector<CurvePoint>& points, std::size_t radius) {
  std::vector<CurvePoint> out = points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t reach = std::min({radius, i, points.size() - 1 - i});
    double sum = 0;
    double weights = 0;
    for (std::size_t j = i - reach; j <= i + reach; ++j) {
      if (std::isfinite(points[j].value)) {
        const auto distance = static_cast<double>(j > i ? j - i : i - j);
        const double weight = 1 - distance / static_cast<double>(reach + 1);
        sum += weight * points[j].value;
        weights += weight;
      }
    }
    if (std::isfinite(points[i].value)) {
      out[i].value = sum / weights;
    }
  }
  return out;
}

bool is_noisy(const std::vector<CurvePoint>& points, const std::vector<CurvePoint>& average) {
  constexpr double kVisible = 0.01;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  double distance = 0;
  double count = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (std::isfinite(points[i].value)) {
      low = std::min(low, points[i].value);
      high = std::max(high, points[i].value);
      distance += std::abs(points[i].value - average[i].value);
      ++count;
    }
  }
  return count > 0 && distance / count > kVisible * (high - low);
}

}  // namespace longhaul::metrics
