// Frozen weights of the layers, each rank holding some rows of every matrix: gathered one layer
// ahead of the pass, beside its compute, into two layers' worth of buffers. Adapters, norms, biases
// and what is trained are whole on every rank, and so are the embedding and the LM head.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "config/model_config.h"
#include "dist/communicator.h"
#include "model/weight_store.h"
#include "ops/side_stream.h"

namespace longhaul::model {

class ShardedWeightStore final : public WeightStore {
 public:
  /// `parameters` (made with a share in `world`) and `world` must outlive the store. `side` is where
  /// gathers run; null: the device's own side stream. Collective over `world`.
  ShardedWeightStore(const config::ModelConfig& model, const Parameters& parameters,
                     double lora_scale, dist::Communicator& world,
                     std::unique_ptr<ops::SideStream> side = nullptr);
  ShardedWeightStore(const ShardedWeightStore&) = delete;
  ShardedWeightStore& operator=(const ShardedWeightStore&) = delete;
  ~ShardedWeightStore() override;

  /// Waits for the layer's gather, or starts it now, and starts that of the next layer in the
  /// direction of the pass, unless it is in its buffer or that buffer is leased.
  ///
  /// Order   collective over all ranks of the world
  /// Errors  SystemError when a rank is late or gone; InternalError when layers of one buffer are
  /// leased at a time (layer and layer ± 2)
  WeightLease acquire(std::int64_t layer, Pass pass) override;
  [[nodiscard]] const EndWeights& ends() const override { return ends_; }
  [[nodiscard]] std::int64_t num_layers() const override {
    return static_cast<std::int64_t>(layers_.size());
  }
  [[nodiscard]] std::int64_t lowest_trained_layer() const override { return lowest_trained_; }

  /// Layers gathered since the beginning.
  [[nodiscard]] std::int64_t num_gathers() const { return num_gathers_; }

 private:
  struct Group {
    const Shard* shard = nullptr;
    at::Tensor matrix;                  // [N + room, K + room]; the first N rows are gathered
    std::vector<std::int64_t> bytes;    // of every rank's rows
    std::vector<at::Tensor> copies;     // views of the slab that adapters are copied into
    std::vector<at::Tensor> originals;  // what is copied there
  };
  struct Layer {
    LayerWeights weights;
    std::vector<Group> groups;
  };
  /// Groups with all of this in common take turns in one matrix: their number in the layer (other
  /// groups of a layer may be of the same shape), N, K, room, and LoRA columns (zeros behind them).
  using Turn = std::tuple<std::size_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  /// One layer's worth of matrices.
  struct Buffer {
    std::map<Turn, at::Tensor> matrices;
    std::int64_t layer = -1;    // that is or will be in it; −1: none
    std::uint64_t version = 0;  // of the adapters in it
    bool is_awaited = false;    // compute has not been told to wait for `ready`
    ops::SideStream::Mark ready;
    std::shared_ptr<const int> hold = std::make_shared<const int>(0);  // shared with leases
  };

  [[nodiscard]] Buffer& buffer_of(std::int64_t layer) {
    return buffers_[static_cast<std::size_t>(layer % 2)];
  }
  Group make_group(Buffer& buffer, std::size_t number, const Shard& shard,
                   std::span<const LinearMember> members);
  void gather(std::int64_t layer);
  void wait_for(Buffer& buffer);
  static void copy_adapters(const Layer& layer);

  const Parameters* parameters_;
  dist::Communicator* world_;
  std::unique_ptr<dist::Communicator> comm_;  // collectives of two streams must not share one
  std::unique_ptr<ops::SideStream> side_;
  std::array<Buffer, 2> buffers_;
  std::vector<Layer> layers_;
  EndWeights ends_;
  std::int64_t lowest_trained_ = 0;
  std::int64_t lowest_backward_ = 0;
  std::int64_t num_gathers_ = 0;
};

}  // namespace longhaul::model
