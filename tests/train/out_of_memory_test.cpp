#include "train/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/activation_policy.h"

namespace longhaul::train {
namespace {

using testing::HasSubstr;

plan::MemoryPlan plan_of(std::int64_t bytes) {
  plan::MemoryPlan plan;
  plan.policies = config::activation_policy_of_layers("A", 2);
  plan.bytes.activations = bytes;
  return plan;
}

TEST(OutOfMemory, SaysWhatWasPlannedWhatWasFoundAndWhatHelps) {
  const std::string too_much =
      out_of_memory("step 3", plan_of(150'000'000'000),
                    {.tensor_bytes = 139'500'000'000, .usable_bytes = 140'000'000'000})
          .line();
  EXPECT_THAT(too_much, HasSubstr("step 3: the device's memory has run out: 150.00 GB were planned "
                                  "per rank (2xA), tensors hold 139.50 GB of 140.00 GB"));
  EXPECT_THAT(too_much, HasSubstr("--activation_policy auto"));
  const std::string shared =
      out_of_memory("step 3", plan_of(90'000'000'000),
                    {.tensor_bytes = 69'500'000'000, .usable_bytes = 100'000'000'000})
          .line();
  EXPECT_THAT(shared, HasSubstr("--gpu_memory_limit 90GB"));
}

TEST(OutOfMemory, ChangesAllocationFailuresOnly) {
  const plan::MemoryPlan plan = plan_of(1000);
  EXPECT_EQ(explain_out_of_memory("step 1", plan, at::kCPU, [] { return 7; }), 7);
  const auto fail = [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory"); };
  try {
    explain_out_of_memory("step 2", plan, at::kCPU, fail);
    FAIL() << "no error";
  } catch (const base::SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 2: the device's memory has run out"));
  }
  const auto other = [] { throw base::UserError(base::Problem{.where = "x", .what = "y"}); };
  EXPECT_THROW(explain_out_of_memory("step 2", plan, at::kCPU, other), base::UserError);
}

}  // namespace
}  // namespace longhaul::train
