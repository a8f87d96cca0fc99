#include "infer/batch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/row_reader.h"

namespace longhaul::infer {
namespace {

namespace fs = std::filesystem;
using base::Problem;
using base::UserError;

/// Takes the last answer off a conversation.
BatchRow make_row(std::string place, text::Conversation conversation) {
  BatchRow row{.place = std::move(place), .conversation = {}, .label = std::nullopt};
  if (conversation.messages.back().role == text::Role::kAssistant) {
    row.label = std::move(conversation.messages.back().content);
    conversation.messages.pop_back();
  }
  row.conversation = std::move(conversation);
  return row;
}

/// Reads the rows of one source into a batch.
class SourceReader {
 public:
  SourceReader(const data::DataSource& source, bool strict, Batch& batch)
      : source_(source), converter_(source.format), strict_(strict), batch_(batch) {}

  /// Returns the renamed columns that no row has.
  std::set<std::string> read() {
    std::vector<data::RowFile> files;
    std::int64_t total = 0;
    for (const fs::path& path : source_.files) {
      files.emplace_back(path);
      total += static_cast<std::int64_t>(files.back().rows().size());
    }
    // #N takes the first rows, and starts again when there are fewer.
    std::int64_t left = total == 0 ? 0 : source_.take.value_or(total);
    batch_.report.rows_repeated += std::max<std::int64_t>(0, left - total);
    while (left > 0) {
      for (const data::RowFile& file : files) {
        for (const data::RowRef& ref : file.rows()) {
          if (left-- > 0) {
            read_row(file.text(ref), file.place(ref));
          }
        }
      }
    }
    std::set<std::string> missing;
    std::uint64_t bit = 1;
    for (const auto& [column, name] : source_.format.columns) {
      if ((columns_seen_ & bit) == 0) {
        missing.insert(column);
      }
      bit <<= 1U;
    }
    return missing;
  }

 private:
  void read_row(std::string_view text, std::string place) {
    ++batch_.report.rows_read;
    data::RowResult result = converter_.convert(text);
    columns_seen_ |= result.columns_seen;
    if (!result.fault.ok()) {
      refuse_or_count(result.fault, place);
      return;
    }
    text::Conversation& conversation = *result.conversation;
    if (conversation.messages.size() == 1 &&
        conversation.messages.front().role == text::Role::kAssistant) {
      refuse_or_count({.reason = "an answer without a question"}, place);
      return;
    }
    ++batch_.report.rows_well_formed;
    batch_.rows.push_back(make_row(std::move(place), std::move(conversation)));
  }

  void refuse_or_count(const data::RowFault& fault, const std::string& place) {
    if (strict_) {
      throw UserError(Problem{.where = place,
                              .what = fault.reason,
                              .got = fault.detail,
                              .hint = "--strict false leaves such rows out"});
    }
    batch_.report.add_fault(fault, place);
  }

  const data::DataSource& source_;
  data::RowConverter converter_;
  bool strict_;
  Batch& batch_;
  std::uint64_t columns_seen_ = 0;
};

/// A renamed column must be somewhere: a slip would otherwise go unnoticed.
void check_columns(const std::vector<std::set<std::string>>& missing_per_source) {
  std::vector<Problem> problems;
  for (const std::string& column : missing_per_source.front()) {
    const bool nowhere =
        std::all_of(missing_per_source.begin(), missing_per_source.end(),
                    [&](const auto& missing) { return missing.count(column) != 0; });
    if (nowhere) {
      problems.push_back({.where = "--columns", .what = "no row has this column", .got = column});
    }
  }
  if (!problems.empty()) {
    throw UserError(std::move(problems));
  }
}

/// Tokens of the longest prompt that leaves room for an answer.
std::int64_t longest_prompt(const PromptPolicy& policy) {
  return std::min(policy.max_length, policy.max_tokens - 1);
}

std::string role_name(text::Role role) {
  switch (role) {
    case text::Role::kSystem:
      return "system";
    case text::Role::kUser:
      return "user";
    default:
      return "assistant";
  }
}

}  // namespace

Batch read_batch(const std::vector<data::DataSource>& sources, bool strict) {
  Batch batch;
  std::vector<std::set<std::string>> missing_columns;
  for (const data::DataSource& source : sources) {
    missing_columns.push_back(SourceReader(source, strict, batch).read());
  }
  LONGHAUL_ASSERT(!missing_columns.empty(), "a batch has sources");
  check_columns(missing_columns);
  if (batch.rows.empty()) {
    Problem problem{.where = "--val_dataset", .what = "no row is left to answer"};
    for (const data::DropCount& count : batch.report.dropped) {
      problem.what +=
          fmt::format(", {} dropped: {} ({}{}{})", count.rows, count.reason, count.first_place,
                      count.first_detail.empty() ? "" : ": ", count.first_detail);
    }
    throw UserError(std::move(problem));
  }
  return batch;
}

std::int64_t shorten_prompt(std::vector<std::int32_t>& ids, const PromptPolicy& policy) {
  const std::int64_t limit = longest_prompt(policy);
  const std::int64_t extra = static_cast<std::int64_t>(ids.size()) - limit;
  if (extra <= 0 || policy.truncation != config::TruncationStrategy::kLeft) {
    return 0;
  }
  ids.erase(ids.begin(), ids.begin() + extra);
  return extra;
}

void refuse_long_prompt(const std::string& where, std::int64_t tokens, const PromptPolicy& policy) {
  const bool by_model = tokens >= policy.max_tokens;
  throw UserError(Problem{
      .where = where,
      .what = by_model ? "the prompt leaves no room for an answer in the model's positions"
                       : "the prompt is longer than the maximum length",
      .got = fmt::format("{} tokens", tokens),
      .expected = fmt::format("at most {}", by_model ? policy.max_tokens - 1 : policy.max_length),
      .hint = by_model ? "Shorten it, or keep its end with --truncation_strategy left"
                       : "Raise --max_length, or keep its end with --truncation_strategy left"});
}

Prompts encode_batch(const Batch& batch, const PromptEncoder& encoder, const PromptPolicy& policy) {
  const std::int64_t limit = longest_prompt(policy);
  Prompts result;
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    Prompt prompt{.row = &batch.rows[i],
                  .row_number = static_cast<std::int64_t>(i),
                  .ids = encoder.encode(batch.rows[i].conversation)};
    const auto tokens = static_cast<std::int64_t>(prompt.ids.size());
    if (tokens == 0) {
      throw UserError(Problem{.where = prompt.row->place, .what = "the question is empty"});
    }
    if (tokens > limit) {
      if (!policy.truncation) {
        refuse_long_prompt(prompt.row->place, tokens, policy);
      }
      if (*policy.truncation == config::TruncationStrategy::kDelete) {
        ++result.left_out;
        continue;
      }
      shorten_prompt(prompt.ids, policy);
      ++result.shortened;
    }
    result.prompts.push_back(std::move(prompt));
  }
  return result;
}

std::string result_line(const text::Conversation& conversation, const std::string& response,
                        const std::optional<std::string>& label) {
  base::OrderedJson messages = base::OrderedJson::array();
  const auto add = [&messages](const std::string& role, const std::string& content) {
    messages.push_back(base::OrderedJson{{"role", role}, {"content", content}});
  };
  if (conversation.system) {
    add("system", *conversation.system);
  }
  for (const text::Message& message : conversation.messages) {
    add(role_name(message.role), message.content);
  }
  add("assistant", response);
  base::OrderedJson line;
  line["messages"] = std::move(messages);
  line["response"] = response;
  line["labels"] = label ? base::OrderedJson(*label) : base::OrderedJson(nullptr);
  return line.dump();
}

ResultFile::ResultFile(const fs::path& path) : path_(path) {
  if (path_.has_parent_path()) {
    base::make_folder(path_.parent_path());
  }
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    throw base::SystemError(
        {.where = path_.string(),
         .what = "cannot create the result file: " + std::generic_category().message(errno),
         .hint = "Name a writable place with --result_path"});
  }
}

ResultFile::~ResultFile() { ::close(fd_); }

void ResultFile::append(const std::string& line) const {
  base::write_fully(fd_, line + "\n", path_);
}

}  // namespace longhaul::infer
