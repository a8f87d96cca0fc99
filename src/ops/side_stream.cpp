#include "ops/side_stream.h"

namespace longhaul::ops {
namespace {

class CpuSideStream final : public SideStream {
 public:
  void run(const std::function<void()>& work) override { work(); }
  Mark mark() override { return nullptr; }
  void wait(const Mark& /*mark*/) override {}
};

}  // namespace

std::unique_ptr<SideStream> cpu_side_stream() { return std::make_unique<CpuSideStream>(); }

}  // namespace longhaul::ops
