// Exchanges of tensors whose every element is a hash of (token, head, dim), so a permutation that
// keeps the element count cannot pass. Expected values are computed from the hash, never from
// another exchange.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <cstdint>
#include <vector>

#include "dist/ulysses.h"

namespace longhaul::dist_test {

using config::Range;
using config::RankHeads;
using dist::Communicator;
using dist::Qkv;
using dist::UlyssesExchange;

enum Kind : std::int64_t { kQ = 1, kK = 2, kV = 3, kO = 4 };

/// An integer that every type used here holds exactly (8 bits for bf16, 20 bits otherwise).
inline double hashed(std::int64_t kind, std::int64_t token, std::int64_t head, std::int64_t dim,
                     at::ScalarType type) {
  std::uint64_t x = static_cast<std::uint64_t>(kind) * 0x9e3779b97f4a7c15ULL;
  for (const std::int64_t part : {token, head, dim}) {
    x = (x ^ static_cast<std::uint64_t>(part + 1)) * 0xff51afd7ed558ccdULL;
    x ^= x >> 29;
  }
  const std::uint64_t values = type == at::kBFloat16 ? 255 : (1U << 20) - 1;
  return static_cast<double>(x % values + 1);
}

/// A tensor [rows, heads, d] filled by `value(row, head, dim)`.
template <typename Value>
at::Tensor filled(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, at::ScalarType type,
                  const Value& value, at::Device device = at::kCPU) {
  at::Tensor x = at::empty({rows, heads, head_dim}, at::TensorOptions().dtype(at::kDouble));
  double* out = x.data_ptr<double>();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t dim = 0; dim < head_dim; ++dim) {
        *out++ = value(row, head, dim);
      }
    }
  }
  return x.to(type).to(device);
}

struct Layout {
  std::int64_t num_q;
  std::int64_t num_kv;
};
inline constexpr Layout kLayouts[] = {{4, 4}, {8, 2}, {6, 2}, {9, 3}, {28, 4}};
inline constexpr std::int64_t kHeadDim = 3;

inline std::vector<std::int64_t> row_lengths(std::int64_t sp) {
  std::vector<std::int64_t> lengths{1};
  for (const std::int64_t length : {sp - 1, sp, sp + 1, 4 * sp + 3}) {
    if (length >= 1) {
      lengths.push_back(length);
    }
  }
  return lengths;
}

/// What one rank sees of one case.
struct Bench {
  Layout layout;
  std::vector<RankHeads> heads;
  std::vector<Range> tokens;
  int rank;
  at::ScalarType type;
  at::Device device = at::kCPU;
  std::int64_t head_dim = kHeadDim;

  [[nodiscard]] const RankHeads& mine() const { return heads[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Range my_tokens() const { return tokens[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::int64_t row() const { return tokens.back().end; }

  /// All heads of this rank's tokens.
  [[nodiscard]] at::Tensor local(Kind kind) const {
    const bool is_kv = kind == kK || kind == kV;
    return filled(
        my_tokens().size(), is_kv ? layout.num_kv : layout.num_q, head_dim, type,
        [&](std::int64_t row, std::int64_t head, std::int64_t dim) {
          return hashed(kind, my_tokens().begin + row, head, dim, type);
        },
        device);
  }
  /// This rank's heads of all tokens, filled by `value(token, head of the model, dim)`.
  template <typename Value>
  [[nodiscard]] at::Tensor of_my_heads(Kind kind, const Value& value) const {
    const bool is_kv = kind == kK || kind == kV;
    return filled(
        row(), is_kv ? mine().num_kv_heads() : mine().num_query_heads(), head_dim, type,
        [&](std::int64_t token, std::int64_t head, std::int64_t dim) {
          const std::int64_t model_head =
              is_kv ? mine().groups[static_cast<std::size_t>(head)].kv_head
                    : mine().query_heads.begin + head;
          return value(token, model_head, dim);
        },
        device);
  }
  [[nodiscard]] at::Tensor head_local(Kind kind) const {
    return of_my_heads(kind, [&](std::int64_t token, std::int64_t head, std::int64_t dim) {
      return hashed(kind, token, head, dim, type);
    });
  }
  /// Gradient of this rank's heads: differs between copies of a KV head, so a missing copy shows. ≤
  /// 16, so that sums of copies are exact in bf16.
  static double copy_gradient(std::int64_t kind, int rank, std::int64_t token, std::int64_t head,
                              std::int64_t dim) {
    return static_cast<double>((kind * 7 + rank * 5 + token * 3 + head * 11 + dim) % 16 + 1);
  }
  [[nodiscard]] at::Tensor head_gradient(Kind kind) const {
    return of_my_heads(kind, [&](std::int64_t token, std::int64_t head, std::int64_t dim) {
      return copy_gradient(kind, rank, token, head, dim);
    });
  }
  /// The sum over all ranks that hold a head, for this rank's tokens.
  [[nodiscard]] at::Tensor summed_gradient(Kind kind) const {
    const bool is_kv = kind == kK || kind == kV;
    return filled(
        my_tokens().size(), is_kv ? layout.num_kv : layout.num_q, head_dim, type,
        [&](std::int64_t row, std::int64_t head, std::int64_t dim) {
          double sum = 0;
          for (std::size_t peer = 0; peer < heads.size(); ++peer) {
            if (holds(heads[peer], is_kv, head)) {
              sum +=
                  copy_gradient(kind, static_cast<int>(peer), my_tokens().begin + row, head, dim);
            }
          }
          return sum;
        },
        device);
  }
  static bool holds(const RankHeads& rank, bool is_kv, std::int64_t head) {
    if (!is_kv) {
      return head >= rank.query_heads.begin && head < rank.query_heads.end;
    }
    for (const config::HeadGroup& group : rank.groups) {
      if (group.kv_head == head) {
        return true;
      }
    }
    return false;
  }
};

/// Heads are written into the peers' memory.
struct ThroughPeers : UlyssesExchange {
  ThroughPeers(Communicator& comm, std::vector<RankHeads> heads, std::int64_t head_dim)
      : UlyssesExchange(comm, std::move(heads), head_dim) {
    use_peer_memory(true);
  }
};

/// The same in parts, some of which are empty for short rows.
template <std::int64_t kParts>
struct InParts : ThroughPeers {
  InParts(Communicator& comm, std::vector<RankHeads> heads, std::int64_t head_dim)
      : ThroughPeers(comm, std::move(heads), head_dim) {
    set_parts(kParts);
  }
};

template <typename Exchange = UlyssesExchange>
bool forward_is_exact(Communicator& comm, const Bench& bench) {
  Exchange exchange(comm, bench.heads, kHeadDim);
  exchange.set_row(bench.tokens);
  const Qkv head = exchange.seq_to_head_qkv(
      {.q = bench.local(kQ), .k = bench.local(kK), .v = bench.local(kV), .fused = {}});
  const at::Tensor o = exchange.head_to_seq(bench.head_local(kO));
  return at::equal(head.q, bench.head_local(kQ)) && at::equal(head.k, bench.head_local(kK)) &&
         at::equal(head.v, bench.head_local(kV)) && at::equal(o, bench.local(kO));
}

template <typename Exchange = UlyssesExchange>
bool backward_is_exact(Communicator& comm, const Bench& bench) {
  Exchange exchange(comm, bench.heads, kHeadDim);
  exchange.set_row(bench.tokens);
  const at::Tensor d_o = exchange.head_to_seq_backward(bench.local(kO));
  const Qkv local = exchange.seq_to_head_qkv_backward({.q = bench.head_gradient(kQ),
                                                       .k = bench.head_gradient(kK),
                                                       .v = bench.head_gradient(kV),
                                                       .fused = {}});
  return at::equal(d_o, bench.head_local(kO)) && at::equal(local.q, bench.summed_gradient(kQ)) &&
         at::equal(local.k, bench.summed_gradient(kK)) &&
         at::equal(local.v, bench.summed_gradient(kV));
}

/// Angles of `rows`, other ones for every row of a row.
inline ops::RopeTable angles_of(const Bench& bench, Range rows) {
  std::vector<std::int32_t> positions;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    positions.push_back(static_cast<std::int32_t>(row * row + 1));
  }
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < bench.head_dim / 2; ++i) {
    frequencies.push_back(0.3F * static_cast<float>(i + 1));
  }
  return ops::make_rope_table(positions, frequencies, bench.device);
}

/// `heads` [rows, heads, d] rotated by a pass of its own.
inline at::Tensor rotated(const at::Tensor& heads, const ops::RopeTable& table,
                          ops::RopeDirection direction) {
  const at::Tensor rows = heads.flatten(1).clone();
  ops::rope(rows, table, heads.size(2), direction);
  return rows.view(heads.sizes());
}

/// Rotates by the angles of `my_angles` on the way to the heads and back. Both must have the bits of
/// an exchange beside a pass of RoPE; a sum of KV copies is rotated before it is rounded.
template <typename Exchange = UlyssesExchange>
bool rotation_is_exact(Communicator& comm, Bench bench, Range my_angles) {
  bench.head_dim = 6;
  Exchange exchange(comm, bench.heads, bench.head_dim);
  exchange.set_row(bench.tokens);
  const ops::RopeTable mine = angles_of(bench, my_angles);
  const Qkv head = exchange.seq_to_head_qkv(
      {.q = bench.local(kQ), .k = bench.local(kK), .v = bench.local(kV), .fused = {}}, {}, mine);
  const Qkv local = exchange.seq_to_head_qkv_backward({.q = bench.head_gradient(kQ),
                                                       .k = bench.head_gradient(kK),
                                                       .v = bench.head_gradient(kV),
                                                       .fused = {}},
                                                      {}, mine);
  const auto forward = [&](Kind kind) {
    return rotated(bench.head_local(kind), angles_of(bench, {0, bench.row()}),
                   ops::RopeDirection::kForward);
  };
  std::int64_t held = 0;
  for (const RankHeads& rank : bench.heads) {
    held += rank.num_kv_heads();
  }
  const auto backward = [&](Kind kind) {
    const bool is_sum = kind == kK && held > bench.layout.num_kv;
    return rotated(bench.summed_gradient(kind).to(is_sum ? at::kFloat : bench.type),
                   angles_of(bench, bench.my_tokens()), ops::RopeDirection::kInverse)
        .to(bench.type);
  };
  return at::equal(head.q, forward(kQ)) && at::equal(head.k, forward(kK)) &&
         at::equal(head.v, bench.head_local(kV)) && at::equal(local.q, backward(kQ)) &&
         at::equal(local.k, backward(kK)) && at::equal(local.v, bench.summed_gradient(kV));
}

}  // namespace longhaul::dist_test
