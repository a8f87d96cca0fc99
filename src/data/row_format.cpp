#include "data/row_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/contains.h"
#include "base/error.h"
#include "data/message_list.h"
#include "data/row_fields.h"

namespace longhaul::data {
namespace {

using base::contains;

using base::OrderedJson;

constexpr std::size_t kMaxColumns = 64;

// The usual names come first: a row that has the canonical name may carry the others as other data.
constexpr std::array<std::string_view, 3> kMessageNames = {"messages", "conversations",
                                                           "conversation"};
constexpr std::array<std::string_view, 2> kSystemNames = {"system", "system_prompt"};
constexpr std::array<std::string_view, 6> kQueryNames = {"query",       "prompt",   "input",
                                                         "instruction", "question", "problem"};
constexpr std::array<std::string_view, 11> kResponseNames = {
    "response", "answer",   "output", "targets",    "target", "answer_key",
    "answers",  "solution", "text",   "completion", "content"};

// Data of other kinds of training: using such a row without it would train something else than the
// file says.
constexpr std::array<std::string_view, 11> kRefusedNames = {"images",
                                                            "image",
                                                            "videos",
                                                            "video",
                                                            "audios",
                                                            "audio",
                                                            "objects",
                                                            "tools",
                                                            "rejected",
                                                            "rejected_response",
                                                            "chat_template_kwargs"};
constexpr std::array<std::string_view, 3> kRefusedPrefixes = {"rejected_", "positive_",
                                                              "negative_"};
constexpr std::array<std::string_view, 6> kPairNames = {"messages", "images", "videos",
                                                        "audios",   "tools",  "objects"};

bool is_refused(std::string_view name) {
  return contains(kRefusedNames, name) ||
         std::any_of(kRefusedPrefixes.begin(), kRefusedPrefixes.end(), [name](auto prefix) {
           return name.starts_with(prefix) && contains(kPairNames, name.substr(prefix.size()));
         });
}

RowFault find_refused(const RowFields& row) {
  for (const auto& [name, value] : row.entries()) {
    if (is_refused(name) && !is_blank(*value)) {
      return {.reason = fmt::format("column \"{}\" is not available yet", name)};
    }
  }
  return {};
}

/// Why the text is not JSON, in one of our few reasons.
RowFault json_fault(std::string_view text, const base::JsonFault& fault) {
  if (!base::is_valid_utf8(text)) {
    return {.reason = "invalid UTF-8"};
  }
  if (fault.reason.find("nested deeper") != std::string::npos) {
    return {.reason = fmt::format("nested deeper than {} levels", base::kMaxJsonDepth)};
  }
  if (fault.reason.find("surrogate") != std::string::npos) {
    return {.reason = "lone surrogate"};
  }
  return {.reason = "malformed JSON",
          .detail = fmt::format("column {}: {}", fault.column, fault.reason)};
}

/// A text field that may be absent.
RowFault read_text(const RowField& field, std::optional<std::string>& out) {
  if (field.value == nullptr) {
    return {};
  }
  if (!field.value->is_string()) {
    return wrong_type(field.name, *field.value, "text");
  }
  out = field.value->get<std::string>();
  return {};
}

RowFault read_system(const RowFields& row, std::string_view system_role,
                     text::Conversation& conversation) {
  RowField field;
  RowFault fault = row.find_one(kSystemNames, "system text", field);
  if (fault.ok() && field.value == nullptr && system_role != kSystemNames.front()) {
    field = row.find(system_role);
  }
  return fault.ok() ? read_text(field, conversation.system) : fault;
}

RowFault add_history_entry(const OrderedJson& entry, std::size_t index,
                           text::Conversation& conversation) {
  const std::string name = fmt::format("history[{}]", index);
  if (!entry.is_array() || entry.size() != 2) {
    return wrong_type(name, entry, "a pair [query, response]");
  }
  for (std::size_t side = 0; side < 2; ++side) {
    const OrderedJson& value = entry[side];
    if (value.is_null()) {
      continue;
    }
    if (!value.is_string()) {
      return wrong_type(fmt::format("{}[{}]", name, side), value, "text");
    }
    conversation.messages.push_back({.role = side == 0 ? text::Role::kUser : text::Role::kAssistant,
                                     .content = value.get<std::string>(),
                                     .loss = std::nullopt});
  }
  return {};
}

RowFault read_history(const RowFields& row, text::Conversation& conversation) {
  const RowField field = row.find("history");
  if (field.value == nullptr) {
    return {};
  }
  if (!field.value->is_array()) {
    return wrong_type(field.name, *field.value, "a list of pairs");
  }
  for (std::size_t i = 0; i < field.value->size(); ++i) {
    if (RowFault fault = add_history_entry((*field.value)[i], i, conversation); !fault.ok()) {
      return fault;
    }
  }
  return {};
}

/// alpaca: instruction and input are two halves of the query.
RowFault read_alpaca_query(const RowFields& row, std::optional<std::string>& query) {
  if (row.find(kQueryNames.front()).value != nullptr) {
    return {.reason = "several columns for the query",
            .detail = "query, instruction and input; choose with --columns"};
  }
  std::optional<std::string> instruction;
  std::optional<std::string> input;
  RowFault fault = read_text(row.find("instruction"), instruction);
  if (fault.ok()) {
    fault = read_text(row.find("input"), input);
  }
  if (!fault.ok() || (!instruction && !input)) {
    return fault;
  }
  const std::string first = instruction.value_or("");
  const std::string second = input.value_or("");
  query = first.empty() || second.empty() ? first + second : first + "\n" + second;
  return {};
}

RowFault read_query_response(const RowFields& row, text::Conversation& conversation) {
  std::optional<std::string> query;
  std::optional<std::string> response;
  const bool alpaca =
      row.find("instruction").value != nullptr && row.find("input").value != nullptr;
  RowFault fault;
  if (alpaca) {
    fault = read_alpaca_query(row, query);
  } else {
    RowField field;
    fault = row.find_one(kQueryNames, "query", field);
    fault = fault.ok() ? read_text(field, query) : fault;
  }
  RowField answer;
  if (fault.ok()) {
    // alpaca's answer column wins over the other synonyms.
    answer = alpaca ? row.find("output") : RowField{};
    fault = answer.value == nullptr ? row.find_one(kResponseNames, "response", answer) : fault;
  }
  fault = fault.ok() ? read_text(answer, response) : fault;
  fault = fault.ok() ? read_history(row, conversation) : fault;
  if (!fault.ok()) {
    return fault;
  }
  if (query) {
    conversation.messages.push_back(
        {.role = text::Role::kUser, .content = *std::move(query), .loss = std::nullopt});
  }
  if (response) {
    conversation.messages.push_back(
        {.role = text::Role::kAssistant, .content = *std::move(response), .loss = std::nullopt});
  }
  if (conversation.messages.empty()) {
    return {.reason = "no known format", .detail = "columns: " + row.names()};
  }
  return {};
}

/// The order that a template can render: user, assistant, user, …
RowFault check_turns(const text::Conversation& conversation, bool pretraining) {
  const std::vector<text::Message>& messages = conversation.messages;
  if (messages.front().role == text::Role::kAssistant) {
    if (!pretraining) {
      return {.reason = "an answer without a question",
              .detail = "rows of plain text are for `longhaul pt`"};
    }
  }
  for (std::size_t i = 1; i < messages.size(); ++i) {
    if (messages[i].role == messages[i - 1].role) {
      return {.reason = "roles do not alternate",
              .detail = fmt::format("messages {} and {} have the same role", i, i + 1)};
    }
  }
  return {};
}

RowFault convert_object(const RowFields& row, const RowFormat& format,
                        text::Conversation& conversation) {
  if (RowFault fault = find_refused(row); !fault.ok()) {
    return fault;
  }
  if (RowFault fault = read_system(row, format.system_role, conversation); !fault.ok()) {
    return fault;
  }
  RowField list;
  RowFault fault = row.find_one(kMessageNames, "messages", list);
  if (fault.ok()) {
    fault = list.value != nullptr ? read_message_list(*list.value, list.name, format, conversation)
                                  : read_query_response(row, conversation);
  }
  return fault.ok() ? check_turns(conversation, format.pretraining) : fault;
}

}  // namespace

RowConverter::RowConverter(RowFormat format) : format_(std::move(format)) {
  if (format_.columns.size() > kMaxColumns) {
    throw base::UserError(base::Problem{.where = "--columns",
                                        .what = "too many columns",
                                        .got = std::to_string(format_.columns.size()),
                                        .expected = fmt::format("at most {}", kMaxColumns)});
  }
}

RowResult RowConverter::convert(std::string_view row_text) const {
  RowResult result;
  if (!base::is_valid_utf8(row_text)) {
    result.fault = {.reason = "invalid UTF-8"};
    return result;
  }
  base::JsonFault fault;
  const auto json = base::try_parse_ordered_json(row_text, fault);
  if (!json) {
    result.fault = json_fault(row_text, fault);
    return result;
  }
  if (!json->is_object()) {
    result.fault = wrong_type("row", *json, "an object");
    return result;
  }
  const RowFields row(*json, format_.columns);
  result.columns_seen = row.columns_seen();
  text::Conversation conversation;
  result.fault = convert_object(row, format_, conversation);
  if (result.fault.ok()) {
    result.conversation = std::move(conversation);
  }
  return result;
}

}  // namespace longhaul::data
