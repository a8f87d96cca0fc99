// Masked rows in pieces against the mask of the whole matrix.
#include "model/lora_mask.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "config/kernel_memory.h"

namespace longhaul::model {
namespace {

/// More rows than one masked copy holds, so that there are several.
constexpr std::int64_t kColumns = 4096;
constexpr std::int64_t kRows = 2 * config::kMaskedBytes / (kColumns * 4) + 3;

std::vector<std::uint64_t> row_keys(std::int64_t rows) {
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(rows));
  std::iota(keys.begin(), keys.end(), 7);
  return keys;
}

LoraDropout dropout_of(const std::vector<std::uint64_t>& keys) {
  return ops::DropoutKeys{.row_keys = keys, .seed_key = 5, .probability = 0.25F};
}

TEST(LoraMask, ComesInPiecesOfBoundedBytes) {
  const std::vector<std::uint64_t> keys = row_keys(kRows);
  const at::Tensor x = at::ones({kRows, kColumns});
  at::Tensor want = at::empty_like(x);
  ops::dropout(x, want, *dropout_of(keys), 3, ops::DropoutOutput::kWrite);
  std::int64_t next = 0;
  int pieces = 0;
  masked_rows(x, dropout_of(keys), 3, [&](config::Range rows, const at::Tensor& masked) {
    EXPECT_EQ(rows.begin, next);
    EXPECT_LE(masked.numel() * 4, config::kMaskedBytes);
    EXPECT_TRUE(masked.equal(want.narrow(0, rows.begin, rows.size())));
    next = rows.end;
    ++pieces;
  });
  EXPECT_EQ(next, kRows);
  EXPECT_EQ(pieces, 3);
}

TEST(LoraMask, IsTheInputItselfWithoutDropout) {
  const at::Tensor x = at::randn({5, 3});
  masked_rows(x, std::nullopt, 0, [&](config::Range rows, const at::Tensor& masked) {
    EXPECT_EQ(rows, (config::Range{0, 5}));
    EXPECT_TRUE(masked.is_same(x));
  });
}

TEST(LoraMask, HidesTheSameOfTheGradient) {
  const std::vector<std::uint64_t> keys = row_keys(kRows);
  at::manual_seed(1);
  const at::Tensor du = at::randn({kRows, 2});
  const at::Tensor a = at::randn({2, kColumns});
  const at::Tensor before = at::randn({kRows, kColumns});
  const at::Tensor through_a = at::matmul(du, a);
  at::Tensor want = before.clone();
  ops::dropout(through_a, want, *dropout_of(keys), 0, ops::DropoutOutput::kAccumulate);
  at::Tensor got = before.clone();
  add_through_a(du, a, dropout_of(keys), got);
  EXPECT_TRUE(at::allclose(got, want, 1e-6, 1e-6));
  got = before.clone();
  add_through_a(du, a, std::nullopt, got);
  EXPECT_TRUE(at::allclose(got, before + through_a, 1e-5, 1e-5));
}

TEST(LoraMask, NeedsNoRows) {
  int pieces = 0;
  masked_rows(at::empty({0, 3}), dropout_of({}), 0,
              [&](config::Range rows, const at::Tensor& masked) {
                EXPECT_EQ(rows.size(), 0);
                EXPECT_EQ(masked.size(0), 0);
                ++pieces;
              });
  EXPECT_EQ(pieces, 1);
}

}  // namespace
}  // namespace longhaul::model
