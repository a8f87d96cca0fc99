#include "ops/cuda/cuda_host_slots.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace longhaul::ops {
namespace {

class CudaHostCopier final : public HostCopier {
 public:
  void* allocate(std::int64_t bytes) override {
    void* block = nullptr;
    const cudaError_t result =
        cudaHostAlloc(&block, static_cast<std::size_t>(bytes), cudaHostAllocDefault);
    if (result != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // the caller reports it; later calls must not
      return nullptr;
    }
    return block;
  }

  void release(void* block) override {
    out_.synchronize();
    in_.synchronize();
    C10_CUDA_CHECK_WARN(cudaFreeHost(block));  // also called while an error is on its way
  }

  Mark copy_out(std::span<const HostCopy> copies) override {
    follow_compute(out_);
    for (const HostCopy& copy : copies) {
      enqueue(copy.host, copy.rows.row_bytes, copy.device.data_ptr(), copy.rows.pitch, copy.rows,
              cudaMemcpyDeviceToHost, out_);
    }
    return marked(out_);
  }

  Mark copy_in(std::span<const HostCopy> copies, const Mark& after) override {
    // The new tensors may lie in memory that compute has just freed.
    follow_compute(in_);
    event_of(after).block(in_);
    for (const HostCopy& copy : copies) {
      enqueue(copy.device.data_ptr(), copy.rows.pitch, copy.host, copy.rows.row_bytes, copy.rows,
              cudaMemcpyHostToDevice, in_);
    }
    return marked(in_);
  }

  void wait(const Mark& mark) override { event_of(mark).block(c10::cuda::getCurrentCUDAStream()); }

 private:
  static at::cuda::CUDAEvent& event_of(const Mark& mark) {
    return *static_cast<at::cuda::CUDAEvent*>(mark.get());
  }

  static Mark marked(const c10::cuda::CUDAStream& stream) {
    auto event = std::make_shared<at::cuda::CUDAEvent>();
    event->record(stream);
    return event;
  }

  static void follow_compute(const c10::cuda::CUDAStream& stream) {
    at::cuda::CUDAEvent ready;
    ready.record(c10::cuda::getCurrentCUDAStream());
    ready.block(stream);
  }

  static void enqueue(void* target, std::int64_t target_pitch, const void* source,
                      std::int64_t source_pitch, const TensorRows& rows, cudaMemcpyKind kind,
                      const c10::cuda::CUDAStream& stream) {
    const auto bytes = static_cast<std::size_t>(rows.row_bytes);
    if (rows.rows == 1) {
      C10_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, kind, stream));
      return;
    }
    C10_CUDA_CHECK(cudaMemcpy2DAsync(target, static_cast<std::size_t>(target_pitch), source,
                                     static_cast<std::size_t>(source_pitch), bytes,
                                     static_cast<std::size_t>(rows.rows), kind, stream));
  }

  c10::cuda::CUDAStream out_ = c10::cuda::getStreamFromPool();
  c10::cuda::CUDAStream in_ = c10::cuda::getStreamFromPool();
};

}  // namespace

std::unique_ptr<HostCopier> cuda_host_copier() { return std::make_unique<CudaHostCopier>(); }

}  // namespace longhaul::ops
