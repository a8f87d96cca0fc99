#include "dist/ulysses.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul::dist {
namespace {

/// Heads [begin, begin + count) of a fused buffer as [tokens, count, d].
at::Tensor heads_view(const at::Tensor& fused, std::int64_t begin, std::int64_t count,
                      std::int64_t head_dim) {
  return fused.narrow(1, begin * head_dim, count * head_dim).unflatten(1, {count, head_dim});
}

void check_heads(const at::Tensor& x, std::int64_t tokens, std::int64_t heads,
                 std::int64_t head_dim, const char* name) {
  LONGHAUL_ASSERT(
      x.dim() == 3 && x.size(0) == tokens && x.size(1) == heads && x.size(2) == head_dim,
      fmt::format("{} has the shape [{}, {}, {}]", name, tokens, heads, head_dim));
}

void check_qkv(const Qkv& x, std::int64_t tokens, std::int64_t num_q, std::int64_t num_kv,
               std::int64_t head_dim) {
  check_heads(x.q, tokens, num_q, head_dim, "q");
  check_heads(x.k, tokens, num_kv, head_dim, "k");
  check_heads(x.v, tokens, num_kv, head_dim, "v");
  LONGHAUL_ASSERT(x.q.scalar_type() == x.k.scalar_type() && x.q.scalar_type() == x.v.scalar_type(),
                  "q, k and v have one type");
}

/// The three as one contiguous buffer without a copy, or undefined.
at::Tensor as_fused(const Qkv& x, std::int64_t width) {
  const bool is_one_buffer = x.fused.defined() && x.fused.dim() == 2 && x.fused.is_contiguous() &&
                             x.fused.size(0) == x.q.size(0) && x.fused.size(1) == width;
  return is_one_buffer ? x.fused : at::Tensor();
}

at::ScalarType sum_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

Qkv split_qkv(const at::Tensor& fused, std::int64_t num_q, std::int64_t num_kv,
              std::int64_t head_dim) {
  LONGHAUL_ASSERT(fused.dim() == 2 && fused.size(1) == (num_q + 2 * num_kv) * head_dim,
                  "a fused buffer has the width of its q, k and v heads");
  return {.q = heads_view(fused, 0, num_q, head_dim),
          .k = heads_view(fused, num_q, num_kv, head_dim),
          .v = heads_view(fused, num_q + num_kv, num_kv, head_dim),
          .fused = fused};
}

UlyssesExchange::UlyssesExchange(Communicator& comm, std::vector<config::RankHeads> heads,
                                 std::int64_t head_dim)
    : comm_(comm), heads_(std::move(heads)), head_dim_(head_dim) {
  LONGHAUL_ASSERT(heads_.size() == static_cast<std::size_t>(comm.size()),
                  "one entry of heads per rank of the group");
  for (const config::RankHeads& rank : heads_) {
    LONGHAUL_ASSERT(rank.query_heads.begin == num_query_heads_ && rank.num_query_heads() > 0 &&
                        !rank.groups.empty(),
                    "every rank has query heads, in rank order");
    num_query_heads_ = rank.query_heads.end;
    has_kv_copies_ = has_kv_copies_ || rank.kv_heads().begin < num_kv_heads_;
    num_kv_heads_ = rank.kv_heads().end;
  }
}

void UlyssesExchange::set_row(std::vector<config::Range> tokens) {
  LONGHAUL_ASSERT(tokens.size() == heads_.size(), "one token range per rank of the group");
  std::int64_t next = 0;
  for (const config::Range& range : tokens) {
    LONGHAUL_ASSERT(range.begin == next && range.end >= range.begin,
                    "token ranges follow one another from 0");
    next = range.end;
  }
  tokens_ = std::move(tokens);
  row_tokens_ = next;
}

const config::RankHeads& UlyssesExchange::my_heads() const {
  return heads_[static_cast<std::size_t>(comm_.rank())];
}

std::int64_t UlyssesExchange::local_tokens() const {
  LONGHAUL_ASSERT(!tokens_.empty(), "set_row() before the first exchange");
  return tokens_[static_cast<std::size_t>(comm_.rank())].size();
}

std::int64_t UlyssesExchange::staging_bytes() const {
  return staging_.defined() ? staging_.numel() : 0;
}

std::int64_t UlyssesExchange::width(std::size_t rank, Width kind) const {
  const config::RankHeads& heads = heads_[rank];
  const std::int64_t kv = kind == Width::kFused ? 2 * heads.num_kv_heads() : 0;
  return (heads.num_query_heads() + kv) * head_dim_;
}

/// Bytes of [my S, heads of peer] for every peer.
std::vector<std::int64_t> UlyssesExchange::blocks_by_peer_heads(Width kind, OwnBlock own,
                                                                std::int64_t element_bytes) const {
  std::vector<std::int64_t> bytes;
  for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
    bytes.push_back(local_tokens() * width(rank, kind) * element_bytes);
  }
  if (own == OwnBlock::kLeftOut) {
    bytes[static_cast<std::size_t>(comm_.rank())] = 0;
  }
  return bytes;
}

std::int64_t UlyssesExchange::peer_elements(Width kind) const {
  std::int64_t total_width = 0;
  for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
    total_width += rank == static_cast<std::size_t>(comm_.rank()) ? 0 : width(rank, kind);
  }
  return local_tokens() * total_width;
}

at::Tensor UlyssesExchange::my_rows(const at::Tensor& row) const {
  const config::Range& mine = tokens_[static_cast<std::size_t>(comm_.rank())];
  return row.narrow(0, mine.begin, mine.size());
}

/// Bytes of [S of peer, my heads] for every peer.
std::vector<std::int64_t> UlyssesExchange::blocks_by_peer_tokens(Width kind,
                                                                 std::int64_t element_bytes) const {
  std::vector<std::int64_t> bytes;
  const std::int64_t mine = width(static_cast<std::size_t>(comm_.rank()), kind);
  for (const config::Range& range : tokens_) {
    bytes.push_back(range.size() * mine * element_bytes);
  }
  return bytes;
}

/// The packing buffer as a flat tensor of `elements`.
at::Tensor UlyssesExchange::stage(std::int64_t elements, const at::Tensor& like) {
  const std::int64_t bytes = elements * like.element_size();
  if (!staging_.defined() || staging_.numel() < bytes || staging_.device() != like.device()) {
    staging_ = at::Tensor();  // the old one goes first, so that both never stand side by side
    staging_ = at::empty({bytes}, like.options().dtype(at::kByte));
  }
  return staging_.narrow(0, 0, bytes).view(like.scalar_type());
}

at::Tensor UlyssesExchange::result(const at::Tensor& out, std::vector<std::int64_t> shape,
                                   const at::Tensor& like, std::string_view name) const {
  if (!out.defined()) {
    return at::empty(shape, like.options());
  }
  LONGHAUL_ASSERT(
      out.sizes() == at::IntArrayRef(shape) && out.is_contiguous() &&
          out.scalar_type() == like.scalar_type(),
      fmt::format("{}: the given result is contiguous, of the right shape and type", name));
  return out;
}

Qkv UlyssesExchange::seq_to_head_qkv(const Qkv& local, const at::Tensor& out) {
  check_qkv(local, local_tokens(), num_query_heads_, num_kv_heads_, head_dim_);
  if (heads_.size() == 1) {
    return local;
  }
  const auto me = static_cast<std::size_t>(comm_.rank());
  const std::int64_t element = local.q.element_size();
  const std::vector<std::int64_t> send =
      blocks_by_peer_heads(Width::kFused, OwnBlock::kLeftOut, element);
  const at::Tensor packed = stage(peer_elements(Width::kFused), local.q);
  const at::Tensor fused =
      result(out, {row_tokens_, width(me, Width::kFused)}, local.q, "exchange q,k,v");
  std::int64_t offset = 0;
  for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
    const config::RankHeads& peer = heads_[rank];
    const std::int64_t columns = width(rank, Width::kFused);
    const std::int64_t elements = send[rank] / element;
    const at::Tensor to = rank == me
                              ? my_rows(fused)
                              : packed.narrow(0, offset, elements).view({local_tokens(), columns});
    const Qkv block = split_qkv(to, peer.num_query_heads(), peer.num_kv_heads(), head_dim_);
    block.q.copy_(local.q.narrow(1, peer.query_heads.begin, peer.num_query_heads()));
    block.k.copy_(local.k.narrow(1, peer.kv_heads().begin, peer.num_kv_heads()));
    block.v.copy_(local.v.narrow(1, peer.kv_heads().begin, peer.num_kv_heads()));
    offset += elements;
  }
  comm_.all_to_all("exchange q,k,v", packed.data_ptr(), send, fused.data_ptr(),
                   blocks_by_peer_tokens(Width::kFused, element));
  return split_qkv(fused, my_heads().num_query_heads(), my_heads().num_kv_heads(), head_dim_);
}

at::Tensor UlyssesExchange::head_to_seq(const at::Tensor& o, const at::Tensor& out) {
  check_heads(o, row_tokens_, my_heads().num_query_heads(), head_dim_, "attention output");
  if (heads_.size() == 1) {
    return o;
  }
  const auto me = static_cast<std::size_t>(comm_.rank());
  const std::int64_t element = o.element_size();
  const at::Tensor sent = o.contiguous();  // a peer's rows are then one block: nothing to pack
  const at::Tensor received = stage(peer_elements(Width::kQuery), o);
  comm_.all_to_all("exchange attention output", sent.data_ptr(),
                   blocks_by_peer_tokens(Width::kQuery, element), received.data_ptr(),
                   blocks_by_peer_heads(Width::kQuery, OwnBlock::kLeftOut, element));
  at::Tensor local =
      result(out, {local_tokens(), num_query_heads_, head_dim_}, o, "exchange attention output");
  std::int64_t offset = 0;
  for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
    const config::RankHeads& peer = heads_[rank];
    const std::int64_t count = peer.num_query_heads();
    const std::int64_t elements = rank == me ? 0 : local_tokens() * count * head_dim_;
    const at::Tensor from =
        rank == me ? my_rows(sent)
                   : received.narrow(0, offset, elements).view({local_tokens(), count, head_dim_});
    local.narrow(1, peer.query_heads.begin, count).copy_(from);
    offset += elements;
  }
  return local;
}

at::Tensor UlyssesExchange::head_to_seq_backward(const at::Tensor& d_o, const at::Tensor& out) {
  check_heads(d_o, local_tokens(), num_query_heads_, head_dim_, "gradient of attention output");
  if (heads_.size() == 1) {
    return d_o;
  }
  const auto me = static_cast<std::size_t>(comm_.rank());
  const std::int64_t element = d_o.element_size();
  const at::Tensor packed = stage(peer_elements(Width::kQuery), d_o);
  at::Tensor head = result(out, {row_tokens_, my_heads().num_query_heads(), head_dim_}, d_o,
                           "exchange gradient of attention output");
  std::int64_t offset = 0;
  for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
    const config::RankHeads& peer = heads_[rank];
    const std::int64_t count = peer.num_query_heads();
    const std::int64_t elements = rank == me ? 0 : local_tokens() * count * head_dim_;
    const at::Tensor to =
        rank == me ? my_rows(head)
                   : packed.narrow(0, offset, elements).view({local_tokens(), count, head_dim_});
    to.copy_(d_o.narrow(1, peer.query_heads.begin, count));
    offset += elements;
  }
  comm_.all_to_all("exchange gradient of attention output", packed.data_ptr(),
                   blocks_by_peer_heads(Width::kQuery, OwnBlock::kLeftOut, element),
                   head.data_ptr(), blocks_by_peer_tokens(Width::kQuery, element));
  return head;
}

Qkv UlyssesExchange::seq_to_head_qkv_backward(const Qkv& d_head, const at::Tensor& out) {
  const config::RankHeads& mine = my_heads();
  check_qkv(d_head, row_tokens_, mine.num_query_heads(), mine.num_kv_heads(), head_dim_);
  if (heads_.size() == 1) {
    return d_head;
  }
  const std::int64_t element = d_head.q.element_size();
  const std::int64_t my_width = width(static_cast<std::size_t>(comm_.rank()), Width::kFused);
  at::Tensor sent = as_fused(d_head, my_width);
  if (!sent.defined()) {
    sent = at::empty({row_tokens_, my_width}, d_head.q.options());
    const Qkv parts = split_qkv(sent, mine.num_query_heads(), mine.num_kv_heads(), head_dim_);
    parts.q.copy_(d_head.q);
    parts.k.copy_(d_head.k);
    parts.v.copy_(d_head.v);
  }
  const at::Tensor received = stage(peer_elements(Width::kFused), d_head.q);
  comm_.all_to_all("exchange gradient of q,k,v", sent.data_ptr(),
                   blocks_by_peer_tokens(Width::kFused, element), received.data_ptr(),
                   blocks_by_peer_heads(Width::kFused, OwnBlock::kLeftOut, element));
  const Qkv local =
      split_qkv(result(out, {local_tokens(), (num_query_heads_ + 2 * num_kv_heads_) * head_dim_},
                       d_head.q, "exchange gradient of q,k,v"),
                num_query_heads_, num_kv_heads_, head_dim_);
  sum_kv(received, my_rows(sent), local);
  return local;
}

/// Places every rank's block of gradients; a KV head already placed by a lower rank is added to.
void UlyssesExchange::sum_kv(const at::Tensor& received, const at::Tensor& own, const Qkv& local) {
  const bool needs_wider_sum = has_kv_copies_ && sum_type(local.k) != local.k.scalar_type();
  at::Tensor sum_k = local.k;
  at::Tensor sum_v = local.v;
  if (needs_wider_sum) {
    sum_k = at::empty(local.k.sizes(), local.k.options().dtype(sum_type(local.k)));
    sum_v = at::empty(local.v.sizes(), local.v.options().dtype(sum_type(local.v)));
  }
  std::int64_t placed_heads = 0;
  std::int64_t offset = 0;
  for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
    const config::RankHeads& peer = heads_[rank];
    const std::int64_t columns = width(rank, Width::kFused);
    const bool is_mine = rank == static_cast<std::size_t>(comm_.rank());
    const std::int64_t elements = is_mine ? 0 : local_tokens() * columns;
    const at::Tensor from =
        is_mine ? own : received.narrow(0, offset, elements).view({local_tokens(), columns});
    const Qkv block = split_qkv(from, peer.num_query_heads(), peer.num_kv_heads(), head_dim_);
    offset += elements;
    local.q.narrow(1, peer.query_heads.begin, peer.num_query_heads()).copy_(block.q);
    const config::Range kv = peer.kv_heads();
    const std::int64_t shared = std::clamp<std::int64_t>(placed_heads - kv.begin, 0, kv.size());
    const std::int64_t fresh = kv.size() - shared;
    if (shared > 0) {
      add_kv_copy(sum_k.narrow(1, kv.begin, shared), block.k.narrow(1, 0, shared));
      add_kv_copy(sum_v.narrow(1, kv.begin, shared), block.v.narrow(1, 0, shared));
    }
    if (fresh > 0) {
      sum_k.narrow(1, kv.begin + shared, fresh).copy_(block.k.narrow(1, shared, fresh));
      sum_v.narrow(1, kv.begin + shared, fresh).copy_(block.v.narrow(1, shared, fresh));
    }
    placed_heads = std::max(placed_heads, kv.end);
  }
  if (needs_wider_sum) {
    local.k.copy_(sum_k);
    local.v.copy_(sum_v);
  }
}

void UlyssesExchange::add_kv_copy(const at::Tensor& sum, const at::Tensor& copy) { sum.add_(copy); }

at::Tensor UlyssesExchange::gather_tokens(const at::Tensor& local, const at::Tensor& out) {
  LONGHAUL_ASSERT(local.dim() == 2 && local.size(0) == local_tokens(),
                  "gather_tokens takes one row per local token");
  if (heads_.size() == 1) {
    return local;
  }
  const at::Tensor sent = local.contiguous();
  const std::int64_t row_bytes = local.size(1) * local.element_size();
  std::vector<std::int64_t> bytes;
  for (const config::Range& range : tokens_) {
    bytes.push_back(range.size() * row_bytes);
  }
  at::Tensor all = result(out, {row_tokens_, local.size(1)}, local, "gather tokens");
  comm_.all_gather("gather tokens", sent.data_ptr(), local_tokens() * row_bytes, all.data_ptr(),
                   bytes);
  return all;
}

}  // namespace longhaul::dist
