#include "data/ordered_workers.h"

#include <atomic>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

TEST(OrderedWorkers, KeepsOrderWithAnyNumberOfThreads) {
  for (const std::int64_t threads : {1, 2, 7}) {
    std::vector<std::int64_t> seen;
    OrderedWorkers<std::int64_t>::run(
        1001, threads,
        [](std::int64_t i) {
          if (i % 97 == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          return i * i;
        },
        [&seen](std::int64_t i, std::int64_t&& square) {
          EXPECT_EQ(square, i * i);
          seen.push_back(i);
          return true;
        });
    ASSERT_EQ(seen.size(), 1001U);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  }
}

TEST(OrderedWorkers, ThrowsTheErrorOfTheFirstItemThatFailed) {
  for (const std::int64_t threads : {1, 4}) {
    std::int64_t consumed = 0;
    const auto run = [&] {
      OrderedWorkers<int>::run(
          500, threads,
          [](std::int64_t i) {
            if (i == 400 || i == 123) {
              throw std::runtime_error(std::to_string(i));
            }
            return 0;
          },
          [&consumed](std::int64_t, int&&) { return ++consumed > 0; });
    };
    EXPECT_EQ(error_of<std::runtime_error>(run), "123");
    EXPECT_EQ(consumed, 123);
  }
}

TEST(OrderedWorkers, StopsWhenTheConsumerHasEnough) {
  std::atomic<std::int64_t> worked = 0;
  std::int64_t consumed = 0;
  OrderedWorkers<int>::run(
      1000000, 3, [&worked](std::int64_t) { return static_cast<int>(++worked > 0); },
      [&consumed](std::int64_t, int&&) { return ++consumed < 10; });
  EXPECT_EQ(consumed, 10);
  EXPECT_LT(worked, 1000);
}

TEST(OrderedWorkers, DoesNothingForNoItems) {
  OrderedWorkers<int>::run(
      0, 4, [](std::int64_t) { return 0; },
      [](std::int64_t, int&&) {
        ADD_FAILURE();
        return true;
      });
}

}  // namespace
}  // namespace longhaul::data
