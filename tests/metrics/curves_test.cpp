#include "metrics/curves.h"

#include <cairo.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/scratch.h"
#include "metrics/records.h"

#if defined(__SANITIZE_ADDRESS__)
/// fontconfig keeps what it has matched until the process ends; that is no leak of ours.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT: the name is the sanitizer's
  return "leak:libfontconfig\n";
}
#endif

namespace longhaul::metrics {
namespace {

namespace fs = std::filesystem;
using test::ScratchFolder;

/// A decoded picture: 32-bit pixels, 0x00RRGGBB.
struct Picture {
  int width = 0;
  int height = 0;
  std::vector<std::uint32_t> pixels;

  [[nodiscard]] std::uint32_t at(int x, int y) const {
    return pixels[static_cast<std::size_t>(y * width + x)] & 0xFFFFFFU;
  }
  /// Rows of column `x` (counted from the top) whose pixel is clearly blue: the curve.
  [[nodiscard]] std::vector<int> curve_rows(int x) const {
    std::vector<int> rows;
    for (int y = 0; y < height; ++y) {
      const int red = static_cast<int>(at(x, y) >> 16);
      const int blue = static_cast<int>(at(x, y) & 255U);
      if (blue - red > 90) {
        rows.push_back(y);
      }
    }
    return rows;
  }
};

Picture decode(const std::string& png) {
  struct Source {
    const std::string* bytes;
    std::size_t at;
  } source{&png, 0};
  const auto read = [](void* closure, unsigned char* out, unsigned int length) {
    auto* from = static_cast<Source*>(closure);
    if (from->at + length > from->bytes->size()) {
      return CAIRO_STATUS_READ_ERROR;
    }
    std::memcpy(out, from->bytes->data() + from->at, length);
    from->at += length;
    return CAIRO_STATUS_SUCCESS;
  };
  cairo_surface_t* surface = cairo_image_surface_create_from_png_stream(read, &source);
  EXPECT_EQ(cairo_surface_status(surface), CAIRO_STATUS_SUCCESS);
  Picture picture{.width = cairo_image_surface_get_width(surface),
                  .height = cairo_image_surface_get_height(surface),
                  .pixels = {}};
  const int stride = cairo_image_surface_get_stride(surface);
  const unsigned char* data = cairo_image_surface_get_data(surface);
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      std::uint32_t pixel = 0;
      std::memcpy(&pixel, data + y * stride + x * 4, 4);
      picture.pixels.push_back(pixel);
    }
  }
  cairo_surface_destroy(surface);
  return picture;
}

TEST(CurvePicture, IsAWholePngOf900By600) {
  const Picture picture = decode(draw_curve_png("train/loss", {{1, 2.5}, {2, 2.0}, {3, 1.75}}));
  EXPECT_EQ(picture.width, 900);
  EXPECT_EQ(picture.height, 600);
  EXPECT_EQ(picture.at(1, 1), 0xFFFFFFU);
  const std::set<std::uint32_t> colors(picture.pixels.begin(), picture.pixels.end());
  EXPECT_GT(colors.size(), 10U);
}

TEST(CurvePicture, ShowsAFallingSeriesFalling) {
  const Picture picture = decode(draw_curve_png("train/loss", {{0, 10}, {50, 6}, {100, 2}}));
  const auto left = picture.curve_rows(200);
  const auto middle = picture.curve_rows(480);
  const auto right = picture.curve_rows(800);
  ASSERT_FALSE(left.empty());
  ASSERT_FALSE(middle.empty());
  ASSERT_FALSE(right.empty());
  EXPECT_LT(left.front() + 100, middle.front());
  EXPECT_LT(middle.front() + 100, right.front());
}

TEST(CurvePicture, LeavesAGapForValuesThatAreNotFinite) {
  std::vector<CurvePoint> points = {{0, 1}, {1, 2}, {2, std::nan("")}, {3, 3}, {4, 4}};
  const Picture picture = decode(draw_curve_png("train/loss", points));
  EXPECT_FALSE(picture.curve_rows(200).empty());
  EXPECT_TRUE(picture.curve_rows(485).empty());  // step 2 lies in the middle
  EXPECT_FALSE(picture.curve_rows(800).empty());
}

TEST(CurvePicture, DrawsStrangeSeriesWithoutFault) {
  const double infinity = HUGE_VAL;
  for (const std::vector<CurvePoint>& points : {std::vector<CurvePoint>{{7, 0.5}},
                                                {{1, 0}, {2, 0}},
                                                {{1, -3}, {2, -3}},
                                                {{1, 1e-300}, {2, 2e-300}},
                                                {{1, -1e300}, {2, 1e300}},
                                                {{1, infinity}, {2, 1}},
                                                {{1, 5e15}, {2, 5e15 + 1}},
                                                {{1, 5e-324}, {2, 1e-323}},
                                                {{1, 1.7e308}, {2, 1}},
                                                {{1, 1}, {1, 2}},
                                                {{1, std::nan("")}}}) {
    EXPECT_EQ(decode(draw_curve_png("x", points)).width, 900);
  }
}

TEST(Curves, WriteOnePicturePerTagThatHasValues) {
  const ScratchFolder scratch;
  Curves curves;
  StepRecord step = sample_step(1);
  step.comm_share = std::nan("");
  curves.add(step);
  curves.add(sample_eval(1));
  curves.draw(scratch / "images");
  EXPECT_TRUE(fs::exists(scratch / "images/train_loss.png"));
  EXPECT_TRUE(fs::exists(scratch / "images/train_learning_rate.png"));
  EXPECT_TRUE(fs::exists(scratch / "images/train_memory_GiB.png"));
  EXPECT_TRUE(fs::exists(scratch / "images/eval_loss.png"));
  EXPECT_FALSE(fs::exists(scratch / "images/train_comm_share.png"));
  for (const auto& entry : fs::directory_iterator(scratch / "images")) {
    EXPECT_EQ(entry.path().extension(), ".png");
  }
  const std::string first = test::get_file(scratch / "images/train_loss.png");
  step.loss = 7;
  step.global_step = 2;
  curves.add(step);
  curves.draw(scratch / "images");
  EXPECT_NE(test::get_file(scratch / "images/train_loss.png"), first);
}

TEST(Curves, OnAFullDiskAreASystemError) {
  const ScratchFolder scratch;
  Curves curves;
  curves.add(sample_eval(1));
  const test::FileSizeLimit limit(100);
  EXPECT_THROW(curves.draw(scratch / "images"), base::SystemError);
}

TEST(CurveFileName, HoldsPlainCharactersOnly) {
  EXPECT_EQ(curve_file_name("train/loss"), "train_loss.png");
  EXPECT_EQ(curve_file_name("train/memory(GiB)"), "train_memory_GiB.png");
  EXPECT_EQ(curve_file_name("train/train_speed(s/it)"), "train_train_speed_s_it.png");
  EXPECT_EQ(curve_file_name("../x"), ".._x.png");
}

}  // namespace
}  // namespace longhaul::metrics
