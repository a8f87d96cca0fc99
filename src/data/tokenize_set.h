// Data files → token store: reads the rows of all sources in order, turns each into a conversation
// and each conversation into tokens on several threads, applies the length policy and writes what
// is left. The result does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset_spec.h"
#include "data/store_writer.h"
#include "text/conversation.h"
#include "text/sample_encoder.h"
#include "text/tokenized_sample.h"

namespace longhaul::data {

/// How conversations become tokens. `encode` is called from several threads at once.
struct Encoding {
  /// Names everything that the tokens of a conversation depend on (tokenizer, template, system,
  /// loss scale).
  std::string identity;
  std::function<text::TokenizedSample(const text::Conversation&)> encode;
};

/// The encoding of a text::SampleEncoder, which must outlive it.
Encoding encoding_of(const text::SampleEncoder& encoder);

struct TokenizeRequest {
  std::string option = "--dataset";  // for messages
  std::vector<DataSource> sources;
  std::int64_t max_length = 0;  // longest sample
  config::TruncationStrategy truncation = config::TruncationStrategy::kDelete;
  bool strict = false;
  std::int64_t threads = 1;
  /// Set: `#N` takes a random sample drawn with this seed; not set: the first N rows.
  std::optional<std::uint64_t> sample_seed;
};

/// Everything the tokens depend on, as one text: files by path, size and checksum (the time of the
/// last change adds nothing to a checksum and would only discard good stores), row formats, length
/// policy, encoding.
std::string tokenize_key(const TokenizeRequest& request, const Encoding& encoding);

/// Fills `writer`. `#N` counts usable rows; with N above their number, rows are taken again from
/// the start (a fresh random order per round with `sample_seed`), as ms-swift does. UserError
/// `file:line` for the first bad row under `strict`, and for a source without any row.
StoreMeta tokenize_set(const TokenizeRequest& request, const Encoding& encoding,
                       StoreWriter& writer);

}  // namespace longhaul::data
