// Communicators that are wrong on purpose, for tests that must be seen failing.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>

#include "dist/communicator.h"
#include "dist/ulysses.h"

namespace longhaul::dist_test {

/// Every operation is passed on, but all_to_all is replaced by identity: each rank keeps its own
/// bytes (cut or filled with zeros to the size it expects) and nothing is sent.
class IdentityExchange : public dist::Communicator {
 public:
  explicit IdentityExchange(dist::Communicator& inner) : inner_(inner) {}
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  void all_to_all(std::string_view /*name*/, const void* send,
                  std::span<const std::int64_t> send_bytes, void* receive,
                  std::span<const std::int64_t> receive_bytes) override {
    const std::int64_t have =
        std::accumulate(send_bytes.begin(), send_bytes.end(), std::int64_t{0});
    const std::int64_t want =
        std::accumulate(receive_bytes.begin(), receive_bytes.end(), std::int64_t{0});
    if (want > 0) {
      std::memset(receive, 0, static_cast<std::size_t>(want));
    }
    if (std::min(have, want) > 0) {
      std::memcpy(receive, send, static_cast<std::size_t>(std::min(have, want)));
    }
  }
  void all_gather(std::string_view name, const void* send, std::int64_t send_bytes, void* receive,
                  std::span<const std::int64_t> receive_bytes) override {
    inner_.all_gather(name, send, send_bytes, receive, receive_bytes);
  }
  void all_reduce_sum(std::string_view name, std::span<float> values) override {
    inner_.all_reduce_sum(name, values);
  }
  void all_reduce_sum(std::string_view name, std::span<double> values) override {
    inner_.all_reduce_sum(name, values);
  }
  void all_reduce_sum(std::string_view name, std::span<std::int64_t> values) override {
    inner_.all_reduce_sum(name, values);
  }
  void all_reduce_max(std::string_view name, std::span<double> values) override {
    inner_.all_reduce_max(name, values);
  }
  void reduce_scatter_sum(std::string_view name, std::span<const float> send,
                          std::span<float> receive,
                          std::span<const std::int64_t> block_elements) override {
    inner_.reduce_scatter_sum(name, send, receive, block_elements);
  }
  void broadcast(std::string_view name, void* data, std::int64_t bytes, int root) override {
    inner_.broadcast(name, data, bytes, root);
  }
  void barrier(std::string_view name) override { inner_.barrier(name); }
  std::unique_ptr<dist::Communicator> split(int color) override { return inner_.split(color); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

 private:
  dist::Communicator& inner_;
};

/// Peer memory in which every rank reaches its own buffer only: what it writes for others stays there.
class DeafPeers final : public IdentityExchange {
 public:
  explicit DeafPeers(dist::Communicator& inner) : IdentityExchange(inner), inner_comm_(inner) {}
  std::unique_ptr<dist::PeerMemory> make_peer_memory(std::int64_t bytes) override {
    return std::make_unique<OwnOnly>(inner_comm_.make_peer_memory(bytes), rank());
  }

 private:
  class OwnOnly final : public dist::PeerMemory {
   public:
    OwnOnly(std::unique_ptr<dist::PeerMemory> real, int rank)
        : real_(std::move(real)), rank_(rank) {}
    [[nodiscard]] std::int64_t bytes() const override { return real_->bytes(); }
    [[nodiscard]] std::byte* of(int /*rank*/) const override { return real_->of(rank_); }
    void open(std::string_view name, std::int64_t parts) override { real_->open(name, parts); }
    void deliver(std::int64_t sent) override { real_->deliver(sent); }
    void await(std::string_view name) override { real_->await(name); }
    void taken() override { real_->taken(); }

   private:
    std::unique_ptr<dist::PeerMemory> real_;
    int rank_;
  };
  dist::Communicator& inner_comm_;
};

/// Gradients of a KV head that several ranks hold are not summed: the lowest rank's copy wins.
class UnsummedKvCopies final : public dist::UlyssesExchange {
 public:
  using UlyssesExchange::UlyssesExchange;

 protected:
  void add_kv_copy(const at::Tensor& /*sum*/, const at::Tensor& /*copy*/) override {}
};

}  // namespace longhaul::dist_test
