// UTF-8, white space and canonical composition (NFC), with the answers that the Hugging Face
// tokenizers give: their tables know other Unicode versions than the system's libraries, and a
// token id must not depend on that.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace longhaul::text {

/// One decoded code point and the bytes it took.
struct CodePoint {
  char32_t value = 0;
  std::size_t size = 0;
};

/// Decodes the code point at `at` of well-formed UTF-8 (`at` < text.size()).
CodePoint code_point_at(std::string_view text, std::size_t at);

/// Decodes the code point that ends just before `end` of well-formed UTF-8 (`end` > 0).
CodePoint code_point_before(std::string_view text, std::size_t end);

/// Appends a code point as UTF-8.
void append_utf8(std::string& out, char32_t value);

/// The property White_Space (what `\s` means in the tokenizers' expressions; U+180E is not in it).
bool is_white_space(char32_t value);

/// A range of code points that were assigned after Unicode 14, with their general category (`Lo`).
struct AssignedRange {
  char32_t first = 0;
  char32_t last = 0;
  const char* category = "";
};

/// Every range that the reference tokenizers know and the regular-expression library may not.
std::span<const AssignedRange> assigned_ranges();

/// True when NFC cannot change the text (a quick look that may say false too often).
bool is_surely_nfc(std::string_view text);

/// Canonical composition as the reference tokenizers do it.
std::string to_nfc(std::string_view text);

/// Bytes as text; every maximal ill-formed part becomes U+FFFD (Rust's and Python's `replace`
/// rule).
std::string to_utf8_lossy(std::string_view bytes);

/// Length of the longest prefix that does not end inside a code point that later bytes could
/// complete.
std::size_t complete_utf8_prefix(std::string_view bytes);

}  // namespace longhaul::text
