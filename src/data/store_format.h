// Layout of a token store file (little-endian, one version number for the whole layout):
//   header | per sample: ids int32[n], target bits (n+7)/8 bytes padded to 4 | sample table | row
//   table | JSON
// A target bit says that labels[i] = ids[i] (labels hold nothing else, so one bit is enough). The
// file is written under another name and renamed, so it appears whole; checksums tell later damage.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::data {

constexpr std::uint32_t kStoreVersion = 1;
constexpr std::uint64_t kStoreMagic = 0x4E454B4F5448474CULL;  // "LGHTOKEN"

struct StoreHeader {
  std::uint64_t magic = kStoreMagic;
  std::uint32_t version = kStoreVersion;
  std::uint32_t header_bytes = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_rows = 0;
  std::uint64_t num_tokens = 0;
  std::uint64_t num_targets = 0;
  std::uint64_t tokens_bytes = 0;  // of the part between header and sample table
  std::uint64_t json_bytes = 0;
  std::uint64_t tokens_checksum = 0;  // XXH3-64 of that part
  std::uint64_t tables_checksum = 0;  // XXH3-64 of everything behind it
  std::uint64_t header_checksum = 0;  // XXH3-64 of the header up to here
};
static_assert(sizeof(StoreHeader) == 88 && sizeof(StoreHeader) % 8 == 0);

/// One sample: where its ids start (from the end of the header), how long it is, which row it came
/// from.
struct SampleRecord {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t num_targets = 0;
  std::uint64_t row = 0;
};
static_assert(sizeof(SampleRecord) == 24);

/// One well-formed row of the data files, with its samples (none when it was too long).
struct RowRecord {
  std::uint64_t offset = 0;  // in its file
  std::uint64_t bytes = 0;
  std::uint64_t line = 0;
  std::uint64_t first_sample = 0;
  std::uint32_t num_samples = 0;
  std::uint32_t file = 0;  // index into the JSON's list of files
};
static_assert(sizeof(RowRecord) == 40);

constexpr std::size_t target_bytes(std::size_t length) { return ((length + 7) / 8 + 3) / 4 * 4; }

}  // namespace longhaul::data
