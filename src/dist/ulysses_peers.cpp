// The exchanges through peer memory: heads are written where their owner reads them. A rank's buffer holds what its
// peers wrote, in rank order and without its own block, which never travels.
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "dist/ulysses.h"
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

}  // namespace

void UlyssesExchange::write_to_rows(PeerMemory& peers, std::string_view name, Width kind,
                                    const at::Tensor& row, const UseBlocks& write) const {
  const auto me = static_cast<std::size_t>(comm_.rank());
  {
    const ops::OpTimer timer(ops::OpKind::kExchange);
    peers.open(name);
    std::vector<at::Tensor> blocks;
    for (std::size_t owner = 0; owner < heads_.size(); ++owner) {
      // In the owner's buffer, behind the rows of the ranks below this one.
      const std::int64_t owners_rows_below = owner < me ? tokens_[owner].size() : 0;
      const std::int64_t columns = width(owner, kind);
      blocks.push_back(owner == me ? my_rows(row)
                                   : matrix_at(peers.of(static_cast<int>(owner)),
                                               (tokens_[me].begin - owners_rows_below) * columns,
                                               local_tokens(), columns, row));
    }
    write(blocks);
    peers.deliver(name, peer_elements(kind) * row.element_size());
  }
  const std::int64_t mine = width(me, kind);
  const std::int64_t below = tokens_[me].begin;
  const std::int64_t above = row_tokens_ - tokens_[me].end;
  std::byte* const arrived = peers.of(static_cast<int>(me));
  row.narrow(0, 0, below).copy_(matrix_at(arrived, 0, below, mine, row));
  row.narrow(0, tokens_[me].end, above).copy_(matrix_at(arrived, below * mine, above, mine, row));
  peers.taken();
}

void UlyssesExchange::write_from_rows(PeerMemory& peers, std::string_view name, Width kind,
                                      const at::Tensor& row, const UseBlocks& read) const {
  const auto me = static_cast<std::size_t>(comm_.rank());
  std::int64_t columns_below = 0;  // of the ranks below this one
  for (std::size_t rank = 0; rank < me; ++rank) {
    columns_below += width(rank, kind);
  }
  const std::int64_t mine = width(me, kind);
  {
    const ops::OpTimer timer(ops::OpKind::kExchange);
    peers.open(name);
    for (std::size_t owner = 0; owner < heads_.size(); ++owner) {
      if (owner == me) {
        continue;
      }
      const config::Range& tokens = tokens_[owner];
      const std::int64_t columns = columns_below - (owner < me ? width(owner, kind) : 0);
      matrix_at(peers.of(static_cast<int>(owner)), columns * tokens.size(), tokens.size(), mine,
                row)
          .copy_(row.narrow(0, tokens.begin, tokens.size()));
    }
    peers.deliver(name, (row_tokens_ - local_tokens()) * mine * row.element_size());
  }
  const std::int64_t elements = peer_elements(kind);
  const at::Tensor message =
      matrix_at(peers.of(static_cast<int>(me)), 0, 1, elements, row).view({elements});
  read(blocks_in(message, my_rows(row), kind));
  peers.taken();
}

}  // namespace longhaul::dist
