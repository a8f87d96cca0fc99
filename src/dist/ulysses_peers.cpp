// The exchanges through peer memory: heads are written where their owner reads them, by copies beside compute. A rank's
// buffer holds the row, or what its peers wrote for its own tokens, one sender's columns after the other's.
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "base/ceil_div.h"
#include "base/error.h"
#include "config/exchange_parts.h"
#include "dist/ulysses.h"
#include "ops/backend.h"
#include "ops/step_clock.h"

namespace longhaul::dist {
namespace {

/// Memory of a peer or of this rank as a matrix on this rank's device, whoever has allocated it.
at::Tensor matrix_at(std::byte* memory, std::int64_t offset_elements, std::int64_t rows,
                     std::int64_t columns, const at::Tensor& like) {
  return at::for_blob(memory + offset_elements * like.element_size(), {rows, columns})
      .options(like.options())
      .target_device(like.device())
      .make_tensor();
}

/// Timed: it is what compute waits for.
void await_parts(PeerMemory& peers, std::string_view name, std::size_t count) {
  const ops::OpTimer timer(ops::OpKind::kExchange);
  for (std::size_t part = 0; part < count; ++part) {
    peers.await(name);
  }
}

}  // namespace

std::int64_t UlyssesExchange::model_width(Width kind) const {
  const std::int64_t kv = kind == Width::kFused ? 2 * num_kv_heads_ : 0;
  return (num_query_heads_ + kv) * head_dim_;
}

std::int64_t UlyssesExchange::most_received(std::int64_t element_bytes) const {
  std::int64_t most = 0;
  for (const Width kind : {Width::kQuery, Width::kFused}) {
    std::int64_t all = 0;  // a KV head of several ranks counts for each
    for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
      all += width(rank, kind);
    }
    for (std::size_t rank = 0; rank < heads_.size(); ++rank) {
      most = std::max({most, row_tokens_ * width(rank, kind), tokens_[rank].size() * all});
    }
  }
  constexpr std::int64_t kPiece = 512;
  return base::round_up(most * element_bytes, kPiece);
}

std::int64_t UlyssesExchange::peer_bytes() const { return peers_ == nullptr ? 0 : peers_->bytes(); }

PeerMemory* UlyssesExchange::peers_for(const at::Tensor& like) {
  if (!wants_peers_) {
    return nullptr;
  }
  release_view();
  const std::int64_t needed =
      most_received(like.element_size()) + row_tokens_ * gathered_columns_ * like.element_size();
  if (peers_ == nullptr || peers_->bytes() < needed) {
    peers_.reset();  // the old one goes first, so that both never stand side by side
    peers_ = comm_.make_peer_memory(std::max<std::int64_t>(needed, 1));
    wants_peers_ = peers_ != nullptr;
    if (wants_peers_ && side_ == nullptr) {
      side_ = ops::backend_of(like).side_stream();
    }
  }
  return peers_.get();
}

std::vector<config::Range> UlyssesExchange::parts_of(std::size_t rank, config::PartOrder order,
                                                     std::int64_t columns) const {
  const auto ranks = static_cast<std::int64_t>(heads_.size());
  const std::int64_t parts = row_tokens_ / ranks >= config::kRowsOfTwoParts ? 2 : 1;
  return config::exchange_parts(tokens_[rank].size(), wanted_parts_ > 0 ? wanted_parts_ : parts,
                                order, columns);
}

at::Tensor UlyssesExchange::write_to_rows(PeerMemory& peers, std::string_view name, Width kind,
                                          at::Tensor row, const at::Tensor& like,
                                          const UseBlocks& write, const Beside& beside,
                                          AlsoGathered& gathered) {
  const auto me = static_cast<std::size_t>(comm_.rank());
  const std::vector<config::Range> parts =
      parts_of(me, config::PartOrder::kLongFirst, model_width(kind));
  const at::Tensor arrived =
      matrix_at(peers.of(comm_.rank()), 0, row_tokens_, width(me, kind), like);
  const at::Tensor packed = stage(peer_elements(kind), like);
  const at::Tensor own = my_rows(row.defined() ? row : arrived);
  const at::Tensor also = gathered.mine.defined() ? gathered.mine.contiguous() : at::Tensor();
  const auto gathered_at = [&](int rank) {  // [T, width] in a rank's memory
    return matrix_at(peers.of(rank) + most_received(like.element_size()), 0, row_tokens_,
                     also.size(1), also);
  };
  for (const config::Range& rows : parts) {
    const std::vector<at::Tensor> blocks = blocks_in(packed, own, kind, rows);
    write(rows, blocks);
    const bool is_first = &rows == parts.data();
    side_->run([&] {
      if (is_first) {
        peers.open(name, static_cast<std::int64_t>(parts.size()));
      }
      std::int64_t sent = 0;
      for (std::size_t owner = 0; owner < heads_.size(); ++owner) {
        if (owner == me) {
          continue;
        }
        if (is_first && also.defined()) {
          my_rows(gathered_at(static_cast<int>(owner))).copy_(also);
        }
        const std::int64_t columns = width(owner, kind);
        matrix_at(peers.of(static_cast<int>(owner)), (tokens_[me].begin + rows.begin) * columns,
                  rows.size(), columns, like)
            .copy_(blocks[owner]);
        sent += blocks[owner].numel();
      }
      peers.deliver(sent * like.element_size());
    });
  }
  if (beside) {
    beside();
  }
  await_parts(peers, name, parts.size());
  if (also.defined()) {
    LONGHAUL_ASSERT(!row.defined(), "what is gathered stays where peers wrote it");
    gathered.all = gathered_at(comm_.rank());
    my_rows(gathered.all).copy_(also);
  }
  has_view_ = !row.defined();
  if (row.defined()) {
    take_rows(arrived, row);
    peers.taken();
  }
  side_->wait(side_->mark());  // the staging buffer is free
  return row.defined() ? row : arrived;
}

void UlyssesExchange::take_rows(const at::Tensor& arrived, const at::Tensor& row) const {
  const config::Range mine = tokens_[static_cast<std::size_t>(comm_.rank())];
  const std::int64_t above = row_tokens_ - mine.end;
  row.narrow(0, 0, mine.begin).copy_(arrived.narrow(0, 0, mine.begin));
  row.narrow(0, mine.end, above).copy_(arrived.narrow(0, mine.end, above));
}

void UlyssesExchange::write_from_rows(PeerMemory& peers, std::string_view name, Width kind,
                                      const at::Tensor& row, const UseBlocks& read,
                                      const Beside& beside) {
  const auto me = static_cast<std::size_t>(comm_.rank());
  std::int64_t columns_below = 0;  // of the ranks below this one
  for (std::size_t rank = 0; rank < me; ++rank) {
    columns_below += width(rank, kind);
  }
  const std::int64_t mine = width(me, kind);
  constexpr auto kOrder = config::PartOrder::kShortFirst;
  const std::int64_t columns = taker_columns_ > 0 ? taker_columns_ : model_width(Width::kQuery);
  const std::vector<config::Range> parts = parts_of(me, kOrder, columns);
  side_->run([&] {
    peers.open(name, static_cast<std::int64_t>(parts.size()));
    for (std::size_t part = 0; part < parts.size(); ++part) {
      std::int64_t sent = 0;
      for (std::size_t owner = 0; owner < heads_.size(); ++owner) {
        if (owner == me) {
          continue;
        }
        const config::Range rows = parts_of(owner, kOrder, columns)[part];
        // In the owner's buffer, behind the columns of the ranks below this one but itself.
        const std::int64_t first = columns_below - (owner < me ? width(owner, kind) : 0);
        matrix_at(peers.of(static_cast<int>(owner)),
                  first * tokens_[owner].size() + rows.begin * mine, rows.size(), mine, row)
            .copy_(row.narrow(0, tokens_[owner].begin + rows.begin, rows.size()));
        sent += rows.size() * mine;
      }
      peers.deliver(sent * row.element_size());
    }
  });
  if (beside) {
    beside();
  }
  const std::int64_t elements = peer_elements(kind);
  const at::Tensor message =
      matrix_at(peers.of(comm_.rank()), 0, 1, elements, row).view({elements});
  for (std::size_t part = 0; part < parts.size(); ++part) {
    await_parts(peers, name, 1);
    if (part == 0 || parts[part].size() > 0) {  // a rank without tokens has one part without rows
      read(parts[part], blocks_in(message, my_rows(row), kind, parts[part]));
    }
  }
  peers.taken();
  side_->wait(side_->mark());  // `row` has been sent
}

}  // namespace longhaul::dist
