#include "ops/side_stream.h"

#include <gtest/gtest.h>

#include "ops/backend.h"

namespace longhaul::ops {
namespace {

TEST(SideStream, OfTheCpuHasDoneItsWorkWhenItReturns) {
  const auto side = backend_of(at::Device(at::kCPU)).side_stream();
  int done = 0;
  side->run([&] { ++done; });
  EXPECT_EQ(done, 1);
  side->run([&] { done *= 10; });
  const SideStream::Mark mark = side->mark();
  side->wait(mark);
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace longhaul::ops
