// DeepSpeed-Ulysses: trades "my tokens, all heads" for "all tokens, my heads" around attention, and
// back. One layout only, tokens first: rows of [heads, head_dim]. What is on the wire of one
// message is [S of the sender, heads of the receiver]; messages of all senders, one after the
// other, are the receiver's [T, its heads] without another copy. S   tokens of this rank (may be 0)
// T   tokens of the row, the sum of S over ranks Hq, Hk   query and KV heads of the model      nq,
// nk   those of this rank (KV copies counted)      d   head_dim Source: DeepSpeed-Ulysses,
// arXiv:2309.14509
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "config/exchange_parts.h"
#include "config/shapes.h"
#include "dist/communicator.h"
#include "ops/rows.h"
#include "ops/side_stream.h"

namespace longhaul::dist {

/// Queries, keys and values of the same tokens, or their gradients: views [tokens, heads, head_dim]
/// with any row pitch.
struct Qkv {
  at::Tensor q{};
  at::Tensor k{};
  at::Tensor v{};
  /// The buffer [tokens, (q heads + 2 kv heads)·head_dim] that all three lie in; undefined when
  /// they were made apart.
  at::Tensor fused{};
};

/// Cuts a fused buffer [tokens, (num_q + 2 num_kv)·head_dim] (rows may be strided) into its q, k
/// and v. No copy.
Qkv split_qkv(const at::Tensor& fused, std::int64_t num_q, std::int64_t num_kv,
              std::int64_t head_dim);

/// Some of this rank's own tokens, counted from its first one. Exchanges are made in several parts where one can travel
/// while the next is computed; the parts follow one another from 0.
using LocalRows = config::Range;
/// Makes q, k, v, or a gradient [rows, heads, d], of some of this rank's tokens; they are read at once.
using MakeQkv = std::function<Qkv(LocalRows rows)>;
using MakeHeads = std::function<at::Tensor(LocalRows rows)>;
/// Uses what has been written for these rows.
using TakeRows = std::function<void(LocalRows rows)>;
/// Enqueues work that needs nothing of the exchange, beside which it runs. May be absent.
using Beside = std::function<void()>;
/// Rows that travel with an exchange to all ranks, as gather_tokens() sends them. May be undefined.
struct AlsoGathered {
  at::Tensor mine{};  // [S, width]
  at::Tensor all{};   // result: [T, width], valid until the next exchange
};

/// The exchanges of one sequence-parallel group. Long-lived: one object per group, set_row() before
/// each row. With one rank every function returns its argument (or views of it), rotated in place
/// where a rotation is given, and nothing is copied or sent. With several ranks the heads move between
/// token-local rows and the blocks of messages in one call of ops::copy_heads.
class UlyssesExchange {
 public:
  /// `heads` of every rank of `comm` in rank order (config::split_heads). `comm` must outlive this
  /// object.
  UlyssesExchange(Communicator& comm, std::vector<config::RankHeads> heads, std::int64_t head_dim);
  UlyssesExchange(const UlyssesExchange&) = delete;
  UlyssesExchange& operator=(const UlyssesExchange&) = delete;
  virtual ~UlyssesExchange() = default;

  /// The row of the following calls: consecutive token ranges of every rank (config::split_tokens).
  /// Local, no message.
  void set_row(std::vector<config::Range> tokens);

  /// Queries, keys and values of my tokens → those of all tokens for my heads; one message per
  /// peer.
  ///
  /// Shapes  q [S, Hq, d], k and v [S, Hk, d] -> q [T, nq, d], k and v [T, nk, d], views of one
  /// fused buffer
  ///         [T, (nq + 2 nk)·d]: `out` when given, else a new one. KV heads are the model's, in
  ///         this rank's order. `rotation`, when defined: the angles of this rank's own tokens
  ///         [S, d/2], by which q and k are rotated on their way.
  /// Units   sends S·d·element_size·Σ over peers p of (nq_p + 2 nk_p) bytes
  /// Order   collective; ranks without tokens call it too
  /// Errors  SystemError from the communicator
  Qkv seq_to_head_qkv(const Qkv& local, const at::Tensor& out = {},
                      const ops::RopeTable& rotation = {});
  /// The same of what `make` makes part by part, in the type and on the device of `like`.
  Qkv seq_to_head_qkv(const MakeQkv& make, const at::Tensor& like, const at::Tensor& out,
                      const ops::RopeTable& rotation);

  /// Attention output of my heads for all tokens → all heads for my tokens.
  ///
  /// Shapes  o [T, nq, d] -> [S, Hq, d] contiguous: `out` when given, else a new tensor
  /// Units   sends (T - S)·nq·d·element_size bytes
  /// Order   collective
  at::Tensor head_to_seq(const at::Tensor& o, const at::Tensor& out = {});
  /// The same into `out` (rows may be strided), which `take` sees part by part. With one rank `out` is not used
  /// and may be undefined.
  at::Tensor head_to_seq(const at::Tensor& o, const at::Tensor& out, const TakeRows& take);

  /// Adjoint of head_to_seq: gradient [S, Hq, d] of its result -> gradient [T, nq, d] of its
  /// argument.
  at::Tensor head_to_seq_backward(const at::Tensor& d_o, const at::Tensor& out = {});
  /// The same of what `make` makes part by part. The result may lie in the memory that peers write: it is valid until
  /// the next exchange.
  at::Tensor head_to_seq_backward(const MakeHeads& make, const at::Tensor& like,
                                  const Beside& beside, AlsoGathered& gathered);

  /// Adjoint of seq_to_head_qkv: gradients for my heads of all tokens -> gradients for all heads of
  /// my tokens.
  ///
  /// Shapes  dq [T, nq, d], dk and dv [T, nk, d] -> dq [S, Hq, d], dk and dv [S, Hk, d], views of
  /// one fused buffer
  ///         [S, (Hq + 2 Hk)·d]: `out` when given. `rotation` as given to the forward call: dq and
  ///         dk arrive rotated back.
  /// Order   collective. The gradients of a KV head that several ranks hold travel in the tensors'
  ///         type and are summed in rank order, in fp32 when that type is narrower; the sum of dk
  ///         is rotated before it is rounded.
  Qkv seq_to_head_qkv_backward(const Qkv& d_head, const at::Tensor& out = {},
                               const ops::RopeTable& rotation = {}, const Beside& beside = {},
                               const TakeRows& take = {});

  /// Rows of every rank's tokens one after the other: [S, width] -> [T, width]. Collective.
  at::Tensor gather_tokens(const at::Tensor& local, const at::Tensor& out = {});

  [[nodiscard]] Communicator& comm() const { return comm_; }
  [[nodiscard]] const config::RankHeads& my_heads() const;
  [[nodiscard]] std::int64_t local_tokens() const;
  [[nodiscard]] std::int64_t row_tokens() const { return row_tokens_; }
  [[nodiscard]] std::int64_t num_query_heads() const { return num_query_heads_; }
  [[nodiscard]] std::int64_t num_kv_heads() const { return num_kv_heads_; }

  /// Bytes of the packing buffer, kept from call to call and grown to the largest row so far.
  [[nodiscard]] std::int64_t staging_bytes() const;
  /// Bytes of this rank's memory that peers write; no tensor's.
  [[nodiscard]] std::int64_t peer_bytes() const;
  /// Collective when ranks write into one another's memory.
  void release_staging();

  /// From the next exchange on ranks write heads directly into their peers' memory where the
  /// communicator can (Communicator::make_peer_memory), instead of sending messages. Collective:
  /// the same on every rank.
  void use_peer_memory(bool wanted);
  /// Whether the last exchange went that way.
  [[nodiscard]] bool uses_peer_memory() const { return peers_ != nullptr; }
  /// Parts of an exchange through peer memory; 0: as rows of this length call for. The same on every rank.
  void set_parts(std::int64_t parts) { wanted_parts_ = parts; }
  /// Output columns of the products that take what arrives for this rank's own tokens; without it as many as queries have. The
  /// same on every rank.
  void set_taker_columns(std::int64_t columns) { taker_columns_ = columns; }

 protected:
  /// Adds another rank's gradient of a shared KV head. Virtual so that a test can leave it out and
  /// see a failure.
  virtual void add_kv_copy(const at::Tensor& sum, const at::Tensor& copy);

 private:
  /// Widths in elements of one token's heads on every rank.
  enum class Width { kQuery, kFused };
  [[nodiscard]] std::int64_t width(std::size_t rank, Width kind) const;
  /// Whether a message has a place for this rank's own block, which never travels.
  enum class OwnBlock { kIncluded, kLeftOut };
  [[nodiscard]] std::vector<std::int64_t> blocks_by_peer_heads(Width kind, OwnBlock own,
                                                               std::int64_t element_bytes) const;
  [[nodiscard]] std::vector<std::int64_t> blocks_by_peer_tokens(Width kind,
                                                                std::int64_t element_bytes) const;
  /// Elements of all peers' heads for this rank's tokens.
  [[nodiscard]] std::int64_t peer_elements(Width kind) const;
  /// This rank's tokens among those of the row.
  [[nodiscard]] at::Tensor my_rows(const at::Tensor& row) const;
  /// The rows of a part of every rank: [rows, width] of peers in `message`, where each peer's [S, width] follow one
  /// another, this rank's in `own` [S, width].
  [[nodiscard]] std::vector<at::Tensor> blocks_in(const at::Tensor& message, const at::Tensor& own,
                                                  Width kind, LocalRows rows) const;
  enum class Way { kPack, kUnpack };
  /// Moves q, or q, k and v, of some rows between `local` and the first columns of all ranks' blocks; packing
  /// rotates q and k, unpacking rotates them back.
  void move_heads(Way way, Width kind, const Qkv& local, std::span<const at::Tensor> blocks,
                  const ops::RopeTable& rotation) const;
  at::Tensor stage(std::int64_t elements, const at::Tensor& like);
  /// What fills, or takes, the [rows, width] blocks of all ranks.
  using UseBlocks = std::function<void(LocalRows rows, std::span<const at::Tensor> blocks)>;
  /// This rank's tokens for every rank's heads, as `write` packs them, -> the result [T, my width]: `row`, or, when
  /// that is undefined, a tensor that is valid until the next exchange.
  at::Tensor to_rows(std::string_view name, Width kind, at::Tensor row, const at::Tensor& like,
                     const UseBlocks& write, const Beside& beside, AlsoGathered& gathered);
  /// `row` [T, my width] -> this rank's tokens of every rank's heads, for `read`.
  void from_rows(std::string_view name, Width kind, const at::Tensor& row, const UseBlocks& read,
                 const Beside& beside);
  /// The same through peer memory.
  at::Tensor write_to_rows(PeerMemory& peers, std::string_view name, Width kind, at::Tensor row,
                           const at::Tensor& like, const UseBlocks& write, const Beside& beside,
                           AlsoGathered& gathered);
  /// The other ranks' rows of what has arrived [T, my width] -> row.
  void take_rows(const at::Tensor& arrived, const at::Tensor& row) const;
  void write_from_rows(PeerMemory& peers, std::string_view name, Width kind, const at::Tensor& row,
                       const UseBlocks& read, const Beside& beside);
  /// A rank's tokens in the parts of this row's exchanges, which products `columns` wide make or take.
  [[nodiscard]] std::vector<config::Range> parts_of(std::size_t rank, config::PartOrder order,
                                                    std::int64_t columns) const;
  /// Of all heads of the model, however many ranks hold one.
  [[nodiscard]] std::int64_t model_width(Width kind) const;
  /// Tells the peers that the view which the last exchange gave is not used any more.
  void release_view();
  /// The peer memory of this row, grown when it must be; null: messages.
  PeerMemory* peers_for(const at::Tensor& like);
  /// Most bytes of heads that any rank receives in one exchange of this row, in whole pieces of 512: behind them is
  /// what is gathered.
  [[nodiscard]] std::int64_t most_received(std::int64_t element_bytes) const;
  at::Tensor result(const at::Tensor& out, std::vector<std::int64_t> shape, const at::Tensor& like,
                    std::string_view name) const;
  /// d_head as one buffer [T, (nq + 2 nk)·d]: its own when it has one.
  [[nodiscard]] at::Tensor gradient_message(const Qkv& d_head) const;
  void sum_kv(std::span<const at::Tensor> blocks, const Qkv& local, const ops::RopeTable& rotation);

  Communicator& comm_;
  std::vector<config::RankHeads> heads_;
  std::int64_t head_dim_;
  std::int64_t num_query_heads_ = 0;
  std::int64_t num_kv_heads_ = 0;
  bool has_kv_copies_ = false;
  std::vector<config::Range> tokens_;
  std::int64_t row_tokens_ = 0;
  at::Tensor staging_;
  bool wants_peers_ = false;
  std::int64_t wanted_parts_ = 0;
  std::int64_t taker_columns_ = 0;     // 0: nobody said
  std::int64_t gathered_columns_ = 0;  // most that an exchange has gathered
  std::unique_ptr<PeerMemory> peers_;
  std::unique_ptr<ops::SideStream> side_;  // where heads travel through peer memory
  bool has_view_ = false;                  // of this rank's own peer memory
};

}  // namespace longhaul::dist
