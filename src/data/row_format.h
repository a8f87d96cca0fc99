// One row of a data file → text::Conversation. Formats: `messages`; `conversations` with from/value
// (ShareGPT) or with human/assistant pairs; query/response with `history` and their synonyms;
// alpaca (instruction, input, output); `text` for plain pre-training. Text is never trimmed or
// changed. A row that asks for something that is not available (images, tools, …) is refused by
// name, never used without it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/row_report.h"
#include "text/conversation.h"

namespace longhaul::data {

/// How the rows of one source are to be read; empty role and key names mean the usual ones.
struct RowFormat {
  std::map<std::string, std::string> columns;  // file's column → our name
  std::string role_key;
  std::string content_key;
  std::string user_role;
  std::string assistant_role;
  std::string system_role = "system";
  bool pretraining = false;  // rows with only an answer (or `text`) are fine

  bool operator==(const RowFormat&) const = default;
};

/// A conversation, or why there is none; `columns_seen` has bit i set when the row has the i-th
/// renamed column.
struct RowResult {
  std::optional<text::Conversation> conversation;
  RowFault fault;
  std::uint64_t columns_seen = 0;
};

/// Reads rows of one source. Stateless after construction: one instance serves many threads.
class RowConverter {
 public:
  /// UserError when more than 64 columns are renamed.
  explicit RowConverter(RowFormat format);

  /// `row_text` is one JSON value.
  [[nodiscard]] RowResult convert(std::string_view row_text) const;

  [[nodiscard]] const RowFormat& format() const { return format_; }

 private:
  RowFormat format_;
};

}  // namespace longhaul::data
