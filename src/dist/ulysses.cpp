#include "dist/ulysses.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ops/step_clock.h"

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

/// [tokens, heads, d] as [tokens, heads·d]: a view always, because results are written through it.
at::Tensor as_rows(const at::Tensor& heads) {
  return heads.view({heads.size(0), heads.size(1) * heads.size(2)});
}

/// q and k in place, when there is a rotation.
void rotate(const Qkv& x, const ops::RopeTable& rotation, std::int64_t head_dim,
            ops::RopeDirection direction) {
  if (rotation.cosine.defined()) {
    ops::rope(as_rows(x.q), rotation, head_dim, direction);
    ops::rope(as_rows(x.k), rotation, head_dim, direction);
  }
}

at::Tensor rows_of(const at::Tensor& x, LocalRows rows) {
  return x.defined() ? x.narrow(0, rows.begin, rows.size()) : x;
}

Qkv rows_of(const Qkv& x, LocalRows rows) {
  return {.q = rows_of(x.q, rows),
          .k = rows_of(x.k, rows),
          .v = rows_of(x.v, rows),
          .fused = rows_of(x.fused, rows)};
}

ops::RopeTable rows_of(const ops::RopeTable& table, LocalRows rows) {
  return {.cosine = rows_of(table.cosine, rows), .sine = rows_of(table.sine, rows)};
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

at::Tensor UlyssesExchange::result(const at::Tensor& out, std::vector<std::int64_t> shape,
                                   const at::Tensor& like, std::string_view name) const {
  if (!out.defined()) {
    return at::empty(shape, like.options());
  }
  const bool has_whole_rows = out.dim() == 2 ? out.stride(1) == 1 : out.is_contiguous();
  LONGHAUL_ASSERT(
      out.sizes() == at::IntArrayRef(shape) && has_whole_rows &&
          out.scalar_type() == like.scalar_type(),
      fmt::format("{}: the given result has whole rows, the right shape and type", name));
  return out;
}

std::vector<at::Tensor> UlyssesExchange::blocks_in(const at::Tensor& message, const at::Tensor& own,
                                                   Width kind, LocalRows rows) const {
  std::vector<at::Tensor> blocks;
  std::int64_t offset = 0;
  for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
    if (rank == static_cast<std::size_t>(comm_.rank())) {
      blocks.push_back(own.narrow(0, rows.begin, rows.size()));
      continue;
    }
    const std::int64_t columns = width(rank, kind);
    blocks.push_back(message.narrow(0, offset + rows.begin * columns, rows.size() * columns)
                         .view({rows.size(), columns}));
    offset += local_tokens() * columns;
  }
  return blocks;
}

void UlyssesExchange::move_heads(Way way, Width kind, const Qkv& local,
                                 std::span<const at::Tensor> blocks,
                                 const ops::RopeTable& rotation) const {
  std::vector<ops::HeadCopy> copies;
  const auto add = [&](const at::Tensor& all, const config::Range& heads, const at::Tensor& block,
                       std::int64_t first_head, bool rotated) {
    const at::Tensor mine = all.narrow(1, heads.begin * head_dim_, heads.size() * head_dim_);
    const at::Tensor theirs = block.narrow(1, first_head * head_dim_, heads.size() * head_dim_);
    copies.push_back(way == Way::kPack ? ops::HeadCopy{mine, theirs, rotated}
                                       : ops::HeadCopy{theirs, mine, rotated});
  };
  const bool rotated = rotation.cosine.defined();
  const bool moves_kv = kind == Width::kFused;
  const at::Tensor q = as_rows(local.q);
  const at::Tensor k = moves_kv ? as_rows(local.k) : at::Tensor();
  const at::Tensor v = moves_kv ? as_rows(local.v) : at::Tensor();
  for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
    const config::RankHeads& peer = heads_[rank];
    const std::int64_t num_q = peer.num_query_heads();
    add(q, peer.query_heads, blocks[rank], 0, rotated);
    if (moves_kv) {
      add(k, peer.kv_heads(), blocks[rank], num_q, rotated);
      add(v, peer.kv_heads(), blocks[rank], num_q + peer.num_kv_heads(), false);
    }
  }
  ops::copy_heads(copies, head_dim_, rotation,
                  way == Way::kPack ? ops::RopeDirection::kForward : ops::RopeDirection::kInverse);
}

void UlyssesExchange::release_staging() {
  staging_ = at::Tensor();
  release_view();
  peers_.reset();
}

void UlyssesExchange::release_view() {
  if (has_view_) {
    has_view_ = false;
    peers_->taken();
  }
}

void UlyssesExchange::use_peer_memory(bool wanted) {
  release_staging();
  wants_peers_ = wanted;
}

Qkv UlyssesExchange::seq_to_head_qkv(const Qkv& local, const at::Tensor& out,
                                     const ops::RopeTable& rotation) {
  check_qkv(local, local_tokens(), num_query_heads_, num_kv_heads_, head_dim_);
  return seq_to_head_qkv([&](LocalRows rows) { return rows_of(local, rows); }, local.q, out,
                         rotation);
}

Qkv UlyssesExchange::seq_to_head_qkv(const MakeQkv& make, const at::Tensor& like,
                                     const at::Tensor& out, const ops::RopeTable& rotation) {
  if (heads_.size() == 1) {
    const Qkv local = make({0, local_tokens()});
    rotate(local, rotation, head_dim_, ops::RopeDirection::kForward);
    return local;
  }
  const auto me = static_cast<std::size_t>(comm_.rank());
  AlsoGathered nothing;
  const at::Tensor fused =
      result(out, {row_tokens_, width(me, Width::kFused)}, like, "exchange q,k,v");
  to_rows(
      "exchange q,k,v", Width::kFused, fused, like,
      [&](LocalRows rows, std::span<const at::Tensor> blocks) {
        const Qkv part = make(rows);
        check_qkv(part, rows.size(), num_query_heads_, num_kv_heads_, head_dim_);
        move_heads(Way::kPack, Width::kFused, part, blocks, rows_of(rotation, rows));
      },
      {}, nothing);
  return split_qkv(fused, my_heads().num_query_heads(), my_heads().num_kv_heads(), head_dim_);
}

at::Tensor UlyssesExchange::head_to_seq(const at::Tensor& o, const at::Tensor& out) {
  if (heads_.size() == 1) {
    check_heads(o, row_tokens_, my_heads().num_query_heads(), head_dim_, "attention output");
    return o;
  }
  return head_to_seq(
      o, result(out, {local_tokens(), num_query_heads_, head_dim_}, o, "exchange attention output"),
      [](LocalRows) {});
}

at::Tensor UlyssesExchange::head_to_seq(const at::Tensor& o, const at::Tensor& out,
                                        const TakeRows& take) {
  check_heads(o, row_tokens_, my_heads().num_query_heads(), head_dim_, "attention output");
  if (heads_.size() == 1) {
    take({0, local_tokens()});
    return o;
  }
  check_heads(out, local_tokens(), num_query_heads_, head_dim_, "attention output of my tokens");
  const at::Tensor sent = o.contiguous();  // a peer's rows are then one block: nothing to pack
  from_rows("exchange attention output", Width::kQuery, as_rows(sent),
            [&](LocalRows rows, std::span<const at::Tensor> blocks) {
              move_heads(Way::kUnpack, Width::kQuery, {.q = rows_of(out, rows)}, blocks, {});
              take(rows);
            },
            {});
  return out;
}

at::Tensor UlyssesExchange::head_to_seq_backward(const at::Tensor& d_o, const at::Tensor& out) {
  check_heads(d_o, local_tokens(), num_query_heads_, head_dim_, "gradient of attention output");
  AlsoGathered nothing;
  const at::Tensor head =
      head_to_seq_backward([&](LocalRows rows) { return rows_of(d_o, rows); }, d_o, {}, nothing);
  if (heads_.size() == 1) {
    return head;
  }
  const at::Tensor kept = result(out, head.sizes().vec(), d_o, "exchange gradient of output");
  return kept.copy_(head);
}

at::Tensor UlyssesExchange::head_to_seq_backward(const MakeHeads& make, const at::Tensor& like,
                                                 const Beside& beside, AlsoGathered& gathered) {
  if (heads_.size() == 1) {
    at::Tensor d_o = make({0, local_tokens()});
    gathered.all = gathered.mine;
    if (beside) {
      beside();
    }
    return d_o;
  }
  const at::Tensor rows_made = to_rows(
      "exchange gradient of attention output", Width::kQuery, {}, like,
      [&](LocalRows rows, std::span<const at::Tensor> blocks) {
        const at::Tensor part = make(rows);
        check_heads(part, rows.size(), num_query_heads_, head_dim_, "gradient of attention output");
        move_heads(Way::kPack, Width::kQuery, {.q = part}, blocks, {});
      },
      beside, gathered);
  return rows_made.view({row_tokens_, my_heads().num_query_heads(), head_dim_});
}

at::Tensor UlyssesExchange::gradient_message(const Qkv& d_head) const {
  const std::int64_t my_width = width(static_cast<std::size_t>(comm_.rank()), Width::kFused);
  at::Tensor message = as_fused(d_head, my_width);
  if (!message.defined()) {
    message = at::empty({row_tokens_, my_width}, d_head.q.options());
    const Qkv parts =
        split_qkv(message, my_heads().num_query_heads(), my_heads().num_kv_heads(), head_dim_);
    const ops::HeadCopy copies[] = {{as_rows(d_head.q), as_rows(parts.q)},
                                    {as_rows(d_head.k), as_rows(parts.k)},
                                    {as_rows(d_head.v), as_rows(parts.v)}};
    ops::copy_heads(copies);
  }
  return message;
}

Qkv UlyssesExchange::seq_to_head_qkv_backward(const Qkv& d_head, const at::Tensor& out,
                                              const ops::RopeTable& rotation, const Beside& beside,
                                              const TakeRows& take) {
  const config::RankHeads& mine = my_heads();
  check_qkv(d_head, row_tokens_, mine.num_query_heads(), mine.num_kv_heads(), head_dim_);
  const auto seen = [&](LocalRows rows) {
    if (take) {
      take(rows);
    }
  };
  if (heads_.size() == 1) {
    rotate(d_head, rotation, head_dim_, ops::RopeDirection::kInverse);
    if (beside) {
      beside();
    }
    seen({0, local_tokens()});
    return d_head;
  }
  const at::Tensor sent = gradient_message(d_head);
  const Qkv local =
      split_qkv(result(out, {local_tokens(), (num_query_heads_ + 2 * num_kv_heads_) * head_dim_},
                       d_head.q, "exchange gradient of q,k,v"),
                num_query_heads_, num_kv_heads_, head_dim_);
  from_rows(
      "exchange gradient of q,k,v", Width::kFused, sent,
      [&](LocalRows rows, std::span<const at::Tensor> blocks) {
        const Qkv part = rows_of(local, rows);
        const ops::RopeTable angles = rows_of(rotation, rows);
        move_heads(Way::kUnpack, has_kv_copies_ ? Width::kQuery : Width::kFused, part, blocks,
                   angles);
        if (has_kv_copies_) {
          sum_kv(blocks, part, angles);
        }
        seen(rows);
      },
      beside);
  return local;
}

/// Places every rank's block of KV gradients; a head already placed by a lower rank is added to.
void UlyssesExchange::sum_kv(std::span<const at::Tensor> blocks, const Qkv& local,
                             const ops::RopeTable& rotation) {
  const bool needs_wider_sum = sum_type(local.k) != local.k.scalar_type();
  at::Tensor sum_k = local.k;
  at::Tensor sum_v = local.v;
  if (needs_wider_sum) {
    sum_k = at::empty(local.k.sizes(), local.k.options().dtype(sum_type(local.k)));
    sum_v = at::empty(local.v.sizes(), local.v.options().dtype(sum_type(local.v)));
  }
  std::int64_t placed_heads = 0;
  for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
    const config::RankHeads& peer = heads_[rank];
    const Qkv block =
        split_qkv(blocks[rank], peer.num_query_heads(), peer.num_kv_heads(), head_dim_);
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
  if (rotation.cosine.defined()) {
    ops::rope(as_rows(sum_k), rotation, head_dim_, ops::RopeDirection::kInverse);
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
