#include "data/token_store.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace longhaul::data {
namespace {

/// XXH3-64 in pieces, giving the pages back so that a verification does not count as resident
/// memory.
std::uint64_t checksum_in_pieces(const base::MappedFile& file, std::size_t offset,
                                 std::size_t size) {
  constexpr std::size_t kPiece = std::size_t{8} << 20U;
  struct Deleter {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  const std::unique_ptr<XXH3_state_t, Deleter> state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  for (std::size_t done = 0; done < size; done += kPiece) {
    const std::size_t piece = std::min(kPiece, size - done);
    XXH3_64bits_update(state.get(), file.bytes().data() + offset + done, piece);
    file.drop_pages(offset + done, piece);
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace

base::OrderedJson meta_to_json(const StoreMeta& meta) {
  return {{"key", meta.key}, {"files", meta.files}, {"report", report_to_json(meta.report)}};
}

StoreMeta meta_from_json(const base::OrderedJson& json) {
  StoreMeta meta;
  json.at("key").get_to(meta.key);
  json.at("files").get_to(meta.files);
  meta.report = report_from_json(json.at("report"));
  return meta;
}

std::shared_ptr<const StoreFile> StoreFile::open(const std::filesystem::path& path,
                                                 std::string& fault) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    fault = "missing";
    return nullptr;
  }
  // The constructor is private, so make_shared cannot reach it.
  std::shared_ptr<StoreFile> store(new StoreFile(base::MappedFile(path)));
  fault = store->verify();
  return fault.empty() ? store : nullptr;
}

std::string StoreFile::verify() {
  const std::span<const std::byte> bytes = file_.bytes();
  StoreHeader header;
  if (bytes.size() < sizeof(header)) {
    return "too short";
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  const bool ours =
      header.magic == kStoreMagic && header.version == kStoreVersion &&
      header.header_bytes == sizeof(header) &&
      header.header_checksum == XXH3_64bits(bytes.data(), offsetof(StoreHeader, header_checksum));
  if (!ours) {
    return "not a token store of this version";
  }
  const std::uint64_t rest = bytes.size() - sizeof(header);
  const std::uint64_t limit = rest / sizeof(SampleRecord) + 1;
  if (header.tokens_bytes > rest || header.num_samples > limit || header.num_rows > limit ||
      header.tokens_bytes + header.num_samples * sizeof(SampleRecord) +
              header.num_rows * sizeof(RowRecord) + header.json_bytes !=
          rest) {
    return "the size does not fit the header";
  }
  const std::size_t tables = sizeof(header) + header.tokens_bytes;
  if (checksum_in_pieces(file_, sizeof(header), header.tokens_bytes) != header.tokens_checksum ||
      checksum_in_pieces(file_, tables, bytes.size() - tables) != header.tables_checksum) {
    return "the checksum differs";
  }
  tokens_ = bytes.subspan(sizeof(header), header.tokens_bytes);
  // The writer keeps both tables aligned to 8 bytes, and the mapping starts on a page.
  samples_ = {reinterpret_cast<const SampleRecord*>(bytes.data() + tables), header.num_samples};
  const std::size_t row_table = tables + samples_.size_bytes();
  rows_ = {reinterpret_cast<const RowRecord*>(bytes.data() + row_table), header.num_rows};
  num_tokens_ = static_cast<std::int64_t>(header.num_tokens);
  num_targets_ = static_cast<std::int64_t>(header.num_targets);
  const std::string_view json = file_.text().substr(row_table + rows_.size_bytes());
  try {
    meta_ = meta_from_json(base::OrderedJson::parse(json));
  } catch (const base::OrderedJson::exception&) {
    return "its description cannot be read";
  }
  return tables_fit() ? "" : "its tables are inconsistent";
}

bool StoreFile::tables_fit() const {
  const auto sample_fits = [this](const SampleRecord& sample) {
    const std::uint64_t bytes = std::uint64_t{sample.length} * 4 + target_bytes(sample.length);
    return sample.length > 0 && sample.offset % 4 == 0 && sample.offset <= tokens_.size() &&
           bytes <= tokens_.size() - sample.offset && sample.row < rows_.size() &&
           sample.num_targets < sample.length;
  };
  const auto row_fits = [this](const RowRecord& row) {
    return row.file < meta_.files.size() && row.first_sample <= samples_.size() &&
           row.num_samples <= samples_.size() - row.first_sample;
  };
  return std::all_of(samples_.begin(), samples_.end(), sample_fits) &&
         std::all_of(rows_.begin(), rows_.end(), row_fits);
}

std::span<const std::int32_t> StoreFile::ids(const SampleRecord& sample) const {
  return {reinterpret_cast<const std::int32_t*>(tokens_.data() + sample.offset), sample.length};
}

std::span<const std::byte> StoreFile::target_bits(const SampleRecord& sample) const {
  return tokens_.subspan(sample.offset + std::uint64_t{sample.length} * 4,
                         target_bytes(sample.length));
}

TokenStore::TokenStore(std::shared_ptr<const StoreFile> file, std::vector<std::int64_t> order)
    : file_(std::move(file)), order_(std::move(order)) {
  const auto samples = static_cast<std::int64_t>(file_->samples().size());
  for (const std::int64_t index : order_) {
    LONGHAUL_ASSERT(index >= 0 && index < samples, "a sample number lies inside its store");
    const SampleRecord& sample = file_->samples()[static_cast<std::size_t>(index)];
    total_tokens_ += sample.length;
    total_targets_ += sample.num_targets;
    longest_ = std::max<std::int64_t>(longest_, sample.length);
  }
}

const SampleRecord& TokenStore::record(std::int64_t sample) const {
  LONGHAUL_ASSERT(sample >= 0 && sample < size(), "a sample number lies inside its set");
  return file_->samples()[static_cast<std::size_t>(order_[static_cast<std::size_t>(sample)])];
}

std::span<const std::int32_t> TokenStore::ids(std::int64_t sample) const {
  return file_->ids(record(sample));
}

bool TokenStore::is_target(std::int64_t sample, std::int64_t position) const {
  const SampleRecord& found = record(sample);
  LONGHAUL_ASSERT(position >= 0 && position < found.length, "a position lies inside its sample");
  const auto bits = file_->target_bits(found);
  const auto at = static_cast<std::size_t>(position);
  return ((std::to_integer<unsigned>(bits[at / 8]) >> (at % 8)) & 1U) != 0;
}

text::TokenizedSample TokenStore::read(std::int64_t sample) const {
  const SampleRecord& found = record(sample);
  const auto tokens = file_->ids(found);
  const auto bits = file_->target_bits(found);
  text::TokenizedSample out;
  out.ids.assign(tokens.begin(), tokens.end());
  out.labels.assign(tokens.size(), text::kNoLabel);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (((std::to_integer<unsigned>(bits[i / 8]) >> (i % 8)) & 1U) != 0) {
      out.labels[i] = tokens[i];
    }
  }
  return out;
}

std::string TokenStore::origin(std::int64_t sample) const {
  const RowRecord& row = file_->rows()[record(sample).row];
  return fmt::format("{}:{}", file_->meta().files[row.file], row.line);
}

}  // namespace longhaul::data
