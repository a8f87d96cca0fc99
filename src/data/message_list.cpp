#include "data/message_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/contains.h"
#include "data/row_fields.h"

namespace longhaul::data {
namespace {

using base::contains;

using base::OrderedJson;

constexpr std::array<std::string_view, 2> kRoleKeys = {"role", "from"};
constexpr std::array<std::string_view, 2> kContentKeys = {"content", "value"};
constexpr std::array<std::string_view, 2> kUserRoles = {"user", "human"};
constexpr std::array<std::string_view, 3> kAssistantRoles = {"assistant", "gpt", "bot"};
constexpr std::array<std::string_view, 9> kToolRoles = {
    "tool",          "tool_call",         "tool_response", "tool_calls",  "function",
    "function_call", "function_response", "observation",   "observations"};
// Parts of a message that change what is rendered or trained.
constexpr std::array<std::string_view, 7> kRefusedKeys = {
    "tool_calls",        "tool_call_id", "function_call", "images",
    "reasoning_content", "loss_scale",   "audio"};

/// The member under the configured name, or under the usual ones when none is configured.
const OrderedJson* member(const OrderedJson& message, const std::string& configured,
                          std::span<const std::string_view> usual) {
  if (!configured.empty()) {
    const auto found = message.find(configured);
    return found == message.end() ? nullptr : &*found;
  }
  for (const std::string_view name : usual) {
    if (const auto found = message.find(name); found != message.end()) {
      return &*found;
    }
  }
  return nullptr;
}

RowFault role_of(std::string_view name, const RowFormat& format, text::Role& role) {
  const bool user =
      format.user_role.empty() ? contains(kUserRoles, name) : name == format.user_role;
  const bool assistant = format.assistant_role.empty() ? contains(kAssistantRoles, name)
                                                       : name == format.assistant_role;
  if (user || assistant || name == format.system_role) {
    role = user ? text::Role::kUser : assistant ? text::Role::kAssistant : text::Role::kSystem;
    return {};
  }
  std::string dashed = lower_case(name);
  std::replace(dashed.begin(), dashed.end(), '-', '_');
  if (contains(kToolRoles, dashed)) {
    return {.reason = "tool messages are not available yet"};
  }
  return {.reason = "unknown role", .detail = std::string(name.substr(0, 60))};
}

/// `loss`: true, false, 1, 0 or null.
RowFault read_loss(const OrderedJson& message, const std::string& place, text::Message& out) {
  const auto found = message.find("loss");
  if (found == message.end() || found->is_null()) {
    return {};
  }
  if (found->is_boolean()) {
    out.loss = found->get<bool>();
  } else if (const double weight = found->is_number() ? found->get<double>() : -1;
             weight == 0 || weight == 1) {
    out.loss = weight == 1;
  } else {
    return wrong_type(place + ".loss", *found, "true or false");
  }
  if (out.role != text::Role::kAssistant) {
    if (*out.loss) {
      return {.reason = "loss on a message that is not the assistant's", .detail = place};
    }
    out.loss.reset();
  }
  return {};
}

RowFault find_refused(const OrderedJson& message) {
  for (const std::string_view key : kRefusedKeys) {
    if (const auto found = message.find(key); found != message.end() && !is_blank(*found)) {
      return {.reason = fmt::format("message key \"{}\" is not available yet", key)};
    }
  }
  const auto weight = message.find("weight");
  if (weight != message.end() && !weight->is_null() && *weight != 1) {
    return {.reason = "message key \"weight\" is not available yet",
            .detail = "use \"loss\": false"};
  }
  return {};
}

RowFault read_message(const OrderedJson& message, const std::string& place, const RowFormat& format,
                      text::Message& out) {
  if (!message.is_object()) {
    return wrong_type(place, message, "an object");
  }
  if (RowFault fault = find_refused(message); !fault.ok()) {
    return fault;
  }
  const OrderedJson* role = member(message, format.role_key, kRoleKeys);
  const OrderedJson* content = member(message, format.content_key, kContentKeys);
  if (role == nullptr || content == nullptr) {
    return {.reason = "a message without role or content", .detail = place};
  }
  if (!role->is_string()) {
    return wrong_type(place + "'s role", *role, "text");
  }
  if (!content->is_string()) {
    return wrong_type(place + "'s content", *content, "text");
  }
  out.content = content->get<std::string>();
  RowFault fault = role_of(role->get_ref<const std::string&>(), format, out.role);
  return fault.ok() ? read_loss(message, place, out) : fault;
}

/// ShareGPT's older form: every entry is one round {"human": …, "assistant": …}.
bool is_pair(const OrderedJson& entry, const RowFormat& format) {
  return entry.is_object() && member(entry, format.role_key, kRoleKeys) == nullptr &&
         member(entry, format.content_key, kContentKeys) == nullptr;
}

RowFault read_pair(const OrderedJson& entry, const std::string& place, const RowFormat& format,
                   text::Conversation& conversation) {
  const OrderedJson* user =
      entry.is_object() ? member(entry, format.user_role, kUserRoles) : nullptr;
  const OrderedJson* assistant =
      entry.is_object() ? member(entry, format.assistant_role, kAssistantRoles) : nullptr;
  if (user == nullptr || assistant == nullptr) {
    return {.reason = "a message without role or content", .detail = place};
  }
  if (!user->is_string() || !assistant->is_string()) {
    return wrong_type(place, user->is_string() ? *assistant : *user, "text");
  }
  conversation.messages.push_back(
      {.role = text::Role::kUser, .content = user->get<std::string>(), .loss = std::nullopt});
  conversation.messages.push_back({.role = text::Role::kAssistant,
                                   .content = assistant->get<std::string>(),
                                   .loss = std::nullopt});
  return {};
}

RowFault take_system(text::Message message, std::size_t index, text::Conversation& conversation) {
  if (index != 0) {
    return {.reason = "a system message that is not the first",
            .detail = fmt::format("message {}", index + 1)};
  }
  if (conversation.system && *conversation.system != message.content) {
    return {.reason = "two different system texts in one row"};
  }
  conversation.system = std::move(message.content);
  return {};
}

}  // namespace

RowFault read_message_list(const OrderedJson& list, const std::string& name,
                           const RowFormat& format, text::Conversation& conversation) {
  if (!list.is_array()) {
    return wrong_type(name, list, "a list of messages");
  }
  const bool pairs = !list.empty() && is_pair(list.front(), format);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", name, i);
    RowFault fault;
    if (pairs) {
      fault = read_pair(list[i], place, format, conversation);
    } else {
      text::Message message;
      fault = read_message(list[i], place, format, message);
      if (fault.ok() && message.role == text::Role::kSystem) {
        fault = take_system(std::move(message), i, conversation);
      } else if (fault.ok()) {
        conversation.messages.push_back(std::move(message));
      }
    }
    if (!fault.ok()) {
      return fault;
    }
  }
  if (conversation.messages.empty()) {
    return {.reason = "no messages"};
  }
  return {};
}

}  // namespace longhaul::data
