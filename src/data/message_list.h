// The value of a row's `messages` / `conversations` → turns of a Conversation: role/content or
// from/value entries, or human/assistant pairs.
#pragma once

#include <string>

#include "base/json.h"
#include "data/row_format.h"

namespace longhaul::data {

/// Appends the turns of `list` to `conversation`; a leading system message becomes its `system` (a
/// row that names the system text twice with different texts is a fault). `name` is the column, for
/// messages.
RowFault read_message_list(const base::OrderedJson& list, const std::string& name,
                           const RowFormat& format, text::Conversation& conversation);

}  // namespace longhaul::data
