// Work that runs beside compute: communication and copies whose results are needed later.
#pragma once

#include <functional>
#include <memory>

namespace longhaul::ops {

/// "Compute" is the stream that libtorch's operators of the calling thread run on. All methods are
/// called from one thread, outside of run().
class SideStream {
 public:
  /// A point on the side stream; kept as long as somebody may wait for it.
  using Mark = std::shared_ptr<void>;

  SideStream() = default;
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  virtual ~SideStream() = default;

  /// What libtorch's operators and communicators enqueue inside `work` runs on the side stream:
  /// after earlier work there and after all that compute was given so far. Tensors that it uses
  /// must live until compute has been told to wait for a later mark.
  virtual void run(const std::function<void()>& work) = 0;
  /// The end of all work given so far.
  virtual Mark mark() = 0;
  /// What compute is given from now on starts after the mark.
  virtual void wait(const Mark& mark) = 0;
};

/// Does the work at once.
std::unique_ptr<SideStream> cpu_side_stream();

}  // namespace longhaul::ops
