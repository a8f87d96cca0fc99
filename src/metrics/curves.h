// PNG pictures of training curves, one per tag: `train/loss` → `images/train_loss.png`. Drawn with
// cairo.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/step_record.h"

namespace longhaul::metrics {

struct CurvePoint {
  std::int64_t step = 0;
  double value = 0;
};

/// Collects the values of every tag and draws them.
class Curves {
 public:
  void add(const StepRecord& record);
  void add(const EvalRecord& record);

  /// Draws every tag with at least one finite value into `folder` (made when absent); each picture
  /// replaces the older one whole. SystemError when it cannot be written.
  void draw(const std::filesystem::path& folder) const;

 private:
  std::map<std::string, std::vector<CurvePoint>> points_;
};

/// One curve as the bytes of a PNG of 900 × 600 pixels. Points that are not finite leave a gap.
std::string draw_curve_png(std::string_view tag, const std::vector<CurvePoint>& points);

/// File name of a tag: `train/memory(GiB)` → `train_memory_GiB.png`.
std::string curve_file_name(std::string_view tag);

/// Round tick positions (1, 2 or 5 times a power of ten) inside [low, high], at most `max_ticks` of
/// them.
std::vector<double> nice_ticks(double low, double high, int max_ticks);
/// Texts for ticks: as few digits as tell neighbours apart.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

/// Centred moving average over `radius` points to each side (fewer at the ends, so that it does not
/// lag), weights falling linearly with distance; points that are not finite stay as they are and
/// count for nothing.
std::vector<CurvePoint> smoothed(const std::vector<CurvePoint>& points, std::size_t radius);
/// Whether the average tells more than the points: their mean distance is above 1 % of the range.
bool is_noisy(const std::vector<CurvePoint>& points, const std::vector<CurvePoint>& average);

}  // namespace longhaul::metrics
