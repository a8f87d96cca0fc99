#include "ops/cuda/cuda_side_stream.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace longhaul::ops {
namespace {

class CudaSideStream final : public SideStream {
 public:
  void run(const std::function<void()>& work) override {
    at::cuda::CUDAEvent ready;
    ready.record(c10::cuda::getCurrentCUDAStream());
    ready.block(stream_);
    // Communicators and our kernels ask for the current stream, too.
    const c10::cuda::CUDAStreamGuard on_side(stream_);
    work();
  }

  Mark mark() override {
    auto event = std::make_shared<at::cuda::CUDAEvent>();
    event->record(stream_);
    return event;
  }

  void wait(const Mark& mark) override {
    static_cast<at::cuda::CUDAEvent*>(mark.get())->block(c10::cuda::getCurrentCUDAStream());
  }

 private:
  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/true);
};

}  // namespace

std::unique_ptr<SideStream> cuda_side_stream() { return std::make_unique<CudaSideStream>(); }

}  // namespace longhaul::ops
