// Drawing with cairo: white ground, light grid, the raw values pale and their moving average
// strong.
#include "metrics/curves.h"

#include <cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "metrics/record_json.h"

namespace longhaul::metrics {
namespace {

constexpr int kWidth = 900;
constexpr int kHeight = 600;
constexpr double kLeft = 100;
constexpr double kRight = 30;
constexpr double kTop = 60;
constexpr double kBottom = 70;
constexpr double kTitleSize = 22;
constexpr double kLabelSize = 15;
constexpr double kTickSize = 14;
constexpr std::size_t kSmoothFrom = 20;  // fewer points read better as they are
constexpr std::size_t kWindowsPerCurve = 25;
constexpr std::size_t kMarkersUpTo = 60;  // more markers would hide the line

/// Values beyond this cannot be scaled to pixels and are treated like infinity.
constexpr double kLargest = 1e300;
bool is_drawable(double value) { return std::abs(value) < kLargest; }

struct Color {
  double red, green, blue, alpha;
};
constexpr Color kInk = {0.15, 0.17, 0.20, 1};
constexpr Color kGrid = {0.88, 0.89, 0.91, 1};
constexpr Color kStrong = {0.12, 0.38, 0.72, 1};
constexpr Color kPale = {0.12, 0.38, 0.72, 0.30};

struct ContextDeleter {
  void operator()(cairo_t* context) const { cairo_destroy(context); }
};
struct SurfaceDeleter {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};

/// Data range of one axis, mapped to pixels.
struct Axis {
  double low = 0;
  double high = 1;
  double first_pixel = 0;
  double last_pixel = 1;
  std::vector<double> ticks;

  [[nodiscard]] double pixel(double value) const {
    return first_pixel + (value - low) / (high - low) * (last_pixel - first_pixel);
  }
};

void set_color(cairo_t* context, const Color& color) {
  cairo_set_source_rgba(context, color.red, color.green, color.blue, color.alpha);
}

/// Which point of a text is given: x 0 = left, 0.5 = middle, 1 = right; y 0 = base line, 0.5 =
/// middle, 1 = top.
struct Anchor {
  double x, y;
};

void draw_text(cairo_t* context, const std::string& text, double x, double y, double size,
               Anchor anchor) {
  cairo_set_font_size(context, size);
  cairo_text_extents_t extents;
  cairo_text_extents(context, text.c_str(), &extents);
  cairo_move_to(context, x - extents.x_bearing - anchor.x * extents.width,
                y - extents.y_bearing * anchor.y);
  cairo_show_text(context, text.c_str());
}

/// A pixel line of width 1 lies in the middle of a pixel, so that it is sharp.
double sharp(double pixel) { return std::floor(pixel) + 0.5; }

std::optional<Axis> value_axis(const std::vector<CurvePoint>& points) {
  Axis axis{.low = std::numeric_limits<double>::infinity(),
            .high = -std::numeric_limits<double>::infinity(),
            .first_pixel = kHeight - kBottom,
            .last_pixel = kTop,
            .ticks = {}};
  for (const CurvePoint& point : points) {
    if (is_drawable(point.value)) {
      axis.low = std::min(axis.low, point.value);
      axis.high = std::max(axis.high, point.value);
    }
  }
  if (axis.low > axis.high) {
    return std::nullopt;
  }
  constexpr double kMargin = 0.06;
  const bool starts_at_zero = axis.low >= 0 && axis.low < 0.25 * axis.high;
  double spread = axis.high - axis.low;
  if (spread <= 1e-12 * std::max(std::abs(axis.low), std::abs(axis.high)) || spread < 1e-290) {
    spread = std::abs(axis.low) > 1e-290 ? std::abs(axis.low) : 1;
  }
  axis.low = starts_at_zero ? 0 : axis.low - kMargin * spread;
  axis.high += kMargin * spread;
  axis.ticks = nice_ticks(axis.low, axis.high, 8);
  return axis;
}

Axis step_axis(const std::vector<CurvePoint>& points) {
  const auto [first, last] = std::minmax_element(
      points.begin(), points.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  Axis axis{.low = static_cast<double>(first->step),
            .high = static_cast<double>(last->step),
            .first_pixel = kLeft,
            .last_pixel = kWidth - kRight,
            .ticks = {}};
  if (axis.low == axis.high) {
    axis.low -= 1;
    axis.high += 1;
  }
  for (const double tick : nice_ticks(axis.low, axis.high, 10)) {
    if (tick == std::floor(tick)) {
      axis.ticks.push_back(tick);
    }
  }
  return axis;
}

void draw_frame(cairo_t* context, const Axis& steps, const Axis& values) {
  cairo_set_line_width(context, 1);
  set_color(context, kGrid);
  for (const double tick : steps.ticks) {
    cairo_move_to(context, sharp(steps.pixel(tick)), kTop);
    cairo_line_to(context, sharp(steps.pixel(tick)), kHeight - kBottom);
  }
  for (const double tick : values.ticks) {
    cairo_move_to(context, kLeft, sharp(values.pixel(tick)));
    cairo_line_to(context, kWidth - kRight, sharp(values.pixel(tick)));
  }
  cairo_stroke(context);

  set_color(context, kInk);
  cairo_move_to(context, sharp(kLeft), kTop);
  cairo_line_to(context, sharp(kLeft), sharp(kHeight - kBottom));
  cairo_line_to(context, kWidth - kRight, sharp(kHeight - kBottom));
  cairo_stroke(context);

  const std::vector<std::string> step_texts = tick_labels(steps.ticks);
  for (std::size_t i = 0; i < steps.ticks.size(); ++i) {
    draw_text(context, step_texts[i], steps.pixel(steps.ticks[i]), kHeight - kBottom + 10,
              kTickSize, {.x = 0.5, .y = 1});
  }
  const std::vector<std::string> value_texts = tick_labels(values.ticks);
  for (std::size_t i = 0; i < values.ticks.size(); ++i) {
    draw_text(context, value_texts[i], kLeft - 10, values.pixel(values.ticks[i]), kTickSize,
              {.x = 1, .y = 0.5});
  }
  draw_text(context, "step", (kLeft + kWidth - kRight) / 2, kHeight - 15, kLabelSize,
            {.x = 0.5, .y = 0});
}

void draw_line(cairo_t* context, const std::vector<CurvePoint>& points, const Axis& steps,
               const Axis& values, const Color& color, double width) {
  set_color(context, color);
  cairo_set_line_width(context, width);
  bool pen_down = false;
  for (const CurvePoint& point : points) {
    if (!is_drawable(point.value)) {
      pen_down = false;
      continue;
    }
    const double x = steps.pixel(static_cast<double>(point.step));
    const double y = values.pixel(point.value);
    if (pen_down) {
      cairo_line_to(context, x, y);
    } else {
      cairo_move_to(context, x, y);
    }
    pen_down = true;
  }
  cairo_stroke(context);
}

void draw_markers(cairo_t* context, const std::vector<CurvePoint>& points, const Axis& steps,
                  const Axis& values) {
  constexpr double kRadius = 3.5;
  constexpr double kFullCircle = 6.283185307179586;
  set_color(context, kStrong);
  for (const CurvePoint& point : points) {
    if (is_drawable(point.value)) {
      cairo_new_sub_path(context);
      cairo_arc(context, steps.pixel(static_cast<double>(point.step)), values.pixel(point.value),
                kRadius, 0, kFullCircle);
    }
  }
  cairo_fill(context);
}

void draw_title(cairo_t* context, std::string_view tag, const std::vector<CurvePoint>& points) {
  set_color(context, kInk);
  cairo_select_font_face(context, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_BOLD);
  draw_text(context, std::string(tag), kLeft, kTop - 22, kTitleSize, {.x = 0, .y = 0});
  cairo_select_font_face(context, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  const CurvePoint& last = points.back();
  draw_text(context, fmt::format("{:.5g} at step {}", last.value, last.step), kWidth - kRight,
            kTop - 22, kLabelSize, {.x = 1, .y = 0});
}

/// Below the plot, where no curve can run through it.
void draw_legend(cairo_t* context) {
  constexpr double kLine = 26;
  constexpr double kGap = 8;
  constexpr double kBaseline = kHeight - 17;
  const auto entry = [&](double x, const Color& color, double width, const char* text) {
    set_color(context, color);
    cairo_set_line_width(context, width);
    cairo_move_to(context, x, kBaseline - 5);
    cairo_line_to(context, x + kLine, kBaseline - 5);
    cairo_stroke(context);
    set_color(context, kInk);
    draw_text(context, text, x + kLine + kGap, kBaseline, kTickSize, {.x = 0, .y = 0});
  };
  entry(kWidth - kRight - 335, kPale, 1.5, "each logged value");
  entry(kWidth - kRight - 148, kStrong, 2.5, "moving average");
}

cairo_status_t append_png(void* closure, const unsigned char* data, unsigned int length) {
  static_cast<std::string*>(closure)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

void draw_everything(cairo_t* context, std::string_view tag,
                     const std::vector<CurvePoint>& points) {
  cairo_set_source_rgb(context, 1, 1, 1);
  cairo_paint(context);
  const std::optional<Axis> values = value_axis(points);
  if (!values) {
    return;
  }
  draw_title(context, tag, points);
  const Axis steps = step_axis(points);
  draw_frame(context, steps, *values);
  cairo_set_line_join(context, CAIRO_LINE_JOIN_ROUND);
  const std::vector<CurvePoint> average =
      smoothed(points, std::max<std::size_t>(2, points.size() / kWindowsPerCurve));
  if (points.size() >= kSmoothFrom && is_noisy(points, average)) {
    draw_line(context, points, steps, *values, kPale, 1.5);
    draw_line(context, average, steps, *values, kStrong, 2.5);
    draw_legend(context);
    return;
  }
  draw_line(context, points, steps, *values, kStrong, 2.5);
  if (points.size() <= kMarkersUpTo) {
    draw_markers(context, points, steps, *values);
  }
}

}  // namespace

void Curves::add(const StepRecord& record) {
  for (const auto& [tag, value] : scalars(record)) {
    points_[tag].push_back({.step = record.global_step, .value = value});
  }
}

void Curves::add(const EvalRecord& record) {
  for (const auto& [tag, value] : scalars(record)) {
    points_[tag].push_back({.step = record.global_step, .value = value});
  }
}

void Curves::draw(const std::filesystem::path& folder) const {
  base::make_folder(folder);
  for (const auto& [tag, points] : points_) {
    const bool any = std::any_of(points.begin(), points.end(),
                                 [](const auto& point) { return is_drawable(point.value); });
    if (any) {
      base::write_file_atomically(folder / curve_file_name(tag), draw_curve_png(tag, points));
    }
  }
}

std::string draw_curve_png(std::string_view tag, const std::vector<CurvePoint>& points) {
  const std::unique_ptr<cairo_surface_t, SurfaceDeleter> surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, kWidth, kHeight));
  {
    const std::unique_ptr<cairo_t, ContextDeleter> context(cairo_create(surface.get()));
    draw_everything(context.get(), tag, points);
  }
  std::string png;
  const cairo_status_t status = cairo_surface_write_to_png_stream(surface.get(), append_png, &png);
  if (status != CAIRO_STATUS_SUCCESS) {
    throw base::SystemError(
        {.where = curve_file_name(tag),
         .what = std::string("cannot draw the curve: ") + cairo_status_to_string(status)});
  }
  return png;
}

std::string curve_file_name(std::string_view tag) {
  std::string name;
  for (const char c : tag) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '-';
    if (plain) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  while (!name.empty() && name.back() == '_') {
    name.pop_back();
  }
  return name + ".png";
}

}  // namespace longhaul::metrics
