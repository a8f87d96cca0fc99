// The hand-off from data to text: one training row in our own terms.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace longhaul::text {

enum class Role { kSystem, kUser, kAssistant };

struct Message {
  Role role = Role::kUser;
  std::string content;       // exactly as in the file
  std::optional<bool> loss;  // per-message override where a row format has one
};

/// Invariant: `system` holds the system text if the row has one; `messages` alternate user,
/// assistant, …
struct Conversation {
  std::optional<std::string> system;
  std::vector<Message> messages;
};

}  // namespace longhaul::text
