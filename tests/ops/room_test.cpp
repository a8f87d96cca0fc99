#include "ops/room.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace longhaul::ops {
namespace {

TEST(Room, IsAViewWhereTheRowsAreFarEnoughApart) {
  const at::Tensor matrix = empty_with_room(3, 5, 4, at::kFloat);
  EXPECT_EQ(matrix.sizes(), (at::IntArrayRef{3, 5}));
  matrix.fill_(1);
  const at::Tensor wide = with_room(matrix, 4);
  EXPECT_EQ(wide.sizes(), (at::IntArrayRef{3, 9}));
  EXPECT_EQ(wide.data_ptr(), matrix.data_ptr());
  wide.narrow(1, 5, 4).fill_(2);
  EXPECT_TRUE(matrix.equal(at::ones({3, 5})));
  EXPECT_EQ(with_room(matrix, 3).stride(0), 9);
}

TEST(Room, IsACopyWhereTheyAreNot) {
  const at::Tensor matrix = at::randn({3, 5});
  const at::Tensor wide = with_room(matrix, 2);
  EXPECT_NE(wide.data_ptr(), matrix.data_ptr());
  EXPECT_TRUE(wide.narrow(1, 0, 5).equal(matrix));
  EXPECT_EQ(with_room(at::randn({5, 3}).t(), 1).size(1), 6);
}

TEST(Room, OfNoOrOneRow) {
  EXPECT_EQ(with_room(at::empty({0, 5}), 8).sizes(), (at::IntArrayRef{0, 13}));
  const at::Tensor one = empty_with_room(1, 5, 8, at::kFloat);
  EXPECT_EQ(with_room(one, 8).data_ptr(), one.data_ptr());
}

}  // namespace
}  // namespace longhaul::ops
