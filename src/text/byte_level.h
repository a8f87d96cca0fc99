// Byte-level vocabularies write every byte as one printable character (GPT-2's table); this is the
// table.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace longhaul::text {

/// Bytes as vocabulary text (` the` → `Ġthe`).
std::string to_byte_level(std::string_view bytes);

/// Vocabulary text as bytes; nothing when a character stands for no byte.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace longhaul::text
