// The exchanges through messages of the communicator, and which way an exchange takes.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "dist/ulysses.h"
#include "ops/step_clock.h"

namespace longhaul::dist {

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

at::Tensor UlyssesExchange::to_rows(std::string_view name, Width kind, at::Tensor row,
                                    const at::Tensor& like, const UseBlocks& write,
                                    const Beside& beside, AlsoGathered& gathered) {
  if (gathered.mine.defined()) {
    gathered_columns_ = std::max(gathered_columns_, gathered.mine.size(1));
  }
  if (PeerMemory* const peers = peers_for(like)) {
    return write_to_rows(*peers, name, kind, std::move(row), like, write, beside, gathered);
  }
  if (!row.defined()) {
    row = at::empty({row_tokens_, width(static_cast<std::size_t>(comm_.rank()), kind)},
                    like.options());
  }
  const std::int64_t element = row.element_size();
  const at::Tensor packed = stage(peer_elements(kind), row);
  const LocalRows all{0, local_tokens()};
  write(all, blocks_in(packed, my_rows(row), kind, all));
  {
    const ops::OpTimer timer(ops::OpKind::kExchange);
    comm_.all_to_all(name, packed.data_ptr(),
                     blocks_by_peer_heads(kind, OwnBlock::kLeftOut, element), row.data_ptr(),
                     blocks_by_peer_tokens(kind, element));
  }
  if (gathered.mine.defined()) {
    gathered.all = gather_tokens(gathered.mine);
  }
  if (beside) {
    beside();
  }
  return row;
}

void UlyssesExchange::from_rows(std::string_view name, Width kind, const at::Tensor& row,
                                const UseBlocks& read, const Beside& beside) {
  if (PeerMemory* const peers = peers_for(row)) {
    write_from_rows(*peers, name, kind, row, read, beside);
    return;
  }
  const std::int64_t element = row.element_size();
  const at::Tensor received = stage(peer_elements(kind), row);
  {
    const ops::OpTimer timer(ops::OpKind::kExchange);
    comm_.all_to_all(name, row.data_ptr(), blocks_by_peer_tokens(kind, element),
                     received.data_ptr(), blocks_by_peer_heads(kind, OwnBlock::kLeftOut, element));
  }
  if (beside) {
    beside();
  }
  const LocalRows all{0, local_tokens()};
  read(all, blocks_in(received, my_rows(row), kind, all));
}

}  // namespace longhaul::dist
