// A JSONL batch: rows of every training format → prompts (the last answer is the label and is not
// fed) → one result line per row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset_spec.h"
#include "data/row_report.h"
#include "infer/prompt_encoder.h"
#include "text/conversation.h"

namespace longhaul::infer {

/// One question.
struct BatchRow {
  std::string place;                 // file:line
  text::Conversation conversation;   // ends with the user's turn
  std::optional<std::string> label;  // the answer that the file gives
};

struct Batch {
  std::vector<BatchRow> rows;
  data::RowReport report;
};

/// Reads the rows of `sources` in order. Bad rows are counted and left out, or with `strict` a
/// UserError naming file:line. UserError when no row is left, or no row has a column of --columns.
Batch read_batch(const std::vector<data::DataSource>& sources, bool strict);

/// How long prompts may be, and what becomes of longer ones.
struct PromptPolicy {
  std::int64_t max_length = 0;  // tokens of a prompt
  std::int64_t max_tokens = 0;  // prompt and answer: the model's positions
  /// Absent: a longer prompt is an error; kDelete: its row is left out; kLeft: its end is kept.
  std::optional<config::TruncationStrategy> truncation;
};

/// Keeps the end of a prompt that is longer than allowed, when the policy is kLeft; returns the tokens
/// that it took off the beginning.
std::int64_t shorten_prompt(std::vector<std::int32_t>& ids, const PromptPolicy& policy);

/// A prompt that is longer than allowed, as an error that names the way out.
[[noreturn]] void refuse_long_prompt(const std::string& where, std::int64_t tokens,
                                     const PromptPolicy& policy);

/// A row with its ids.
struct Prompt {
  const BatchRow* row = nullptr;
  std::int64_t row_number = 0;  // in the batch, from 0
  std::vector<std::int32_t> ids;
};

struct Prompts {
  std::vector<Prompt> prompts;
  std::int64_t left_out = 0;   // too long, kDelete
  std::int64_t shortened = 0;  // kLeft
};

/// Encodes all rows before anything is computed. UserError for the first prompt that is too long and
/// may not be shortened. `batch` must outlive the result.
Prompts encode_batch(const Batch& batch, const PromptEncoder& encoder, const PromptPolicy& policy);

/// `{"messages": [… , the response], "response": …, "labels": … or null}`.
std::string result_line(const text::Conversation& conversation, const std::string& response,
                        const std::optional<std::string>& label);

/// A result file that grows line by line, so that an interrupted batch keeps what it has.
class ResultFile {
 public:
  /// Makes the parent folders and an empty file, over an old one. SystemError when that fails.
  explicit ResultFile(const std::filesystem::path& path);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();
  void append(const std::string& line) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace longhaul::infer
