#include "ops/cuda_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/scratch.h"

namespace longhaul::ops {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaLibrary, ThatIsMissingIsAProblemOfTheMachine) {
  EXPECT_THAT(test::message_of<base::SystemError>(
                  [] { load_cuda_backend(0, "/nowhere/liblonghaul_cuda.so"); }),
              AllOf(HasSubstr("/nowhere/liblonghaul_cuda.so"), HasSubstr("longhaul doctor")));
}

TEST(CudaLibrary, ThatIsSomethingElseIsABug) {
  EXPECT_THROW(load_cuda_backend(0, "libm.so.6"), base::InternalError);
}

TEST(CudaLibrary, CpuRanksNeedNoDeviceToBeOpened) {
  config::Config config;
  config.model.device = config::DeviceChoice::kCpu;
  EXPECT_TRUE(open_device(config).is_cpu());
}

}  // namespace
}  // namespace longhaul::ops
