#include "dist/comm_error.h"

#include <gtest/gtest.h>

namespace longhaul::dist {
namespace {

TEST(CommError, NamesRankStepAndOperation) {
  EXPECT_EQ(operation_place(1, 7, "exchange q,k,v"), "rank 1, step 7, exchange q,k,v");
}

TEST(CommError, IsAProblemOfTheMachine) {
  EXPECT_THROW(throw PeerError({.where = operation_place(0, 0, "start"), .what = "is gone"}),
               base::SystemError);
}

}  // namespace
}  // namespace longhaul::dist
