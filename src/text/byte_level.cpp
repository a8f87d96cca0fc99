#include "text/byte_level.h"

#include <array>
#include <cstddef>

#include "text/unicode.h"

namespace longhaul::text {
namespace {

constexpr std::size_t kNumCharacters = 0x144;  // U+0143 is the last character of the table

struct Table {
  std::array<char32_t, 256> character{};
  std::array<int, kNumCharacters> byte{};
};

/// Printable Latin-1 stands for itself, the other bytes for U+0100, U+0101 … in order.
constexpr Table make_table() {
  Table table;
  for (int& byte : table.byte) {
    byte = -1;
  }
  char32_t next = 0x100;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
    table.character.at(byte) = character;
    table.byte.at(character) = static_cast<int>(byte);
  }
  return table;
}

constexpr Table kTable = make_table();
static_assert(kTable.character.at(' ') == 0x120 && kTable.character.at(0xAD) == 0x143);

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    append_utf8(text, kTable.character.at(static_cast<unsigned char>(c)));
  }
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.value >= kNumCharacters || kTable.byte.at(point.value) < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(static_cast<unsigned char>(kTable.byte.at(point.value))));
    at += point.size;
  }
  return bytes;
}

}  // namespace longhaul::text
