#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/error.h"

namespace longhaul::text {
namespace {

constexpr std::array kAssignedRanges = std::to_array<AssignedRange>({
#include "text/unicode_delta.inc"
});

struct Range {
  char32_t first;
  char32_t last;
};

// The reference's composition tables stop at Unicode 9: to it these code points neither reorder nor
// compose, while utf8proc (Unicode 15) would move them. U+11A7 is here because utf8proc drops it
// after a Hangul syllable.
constexpr std::array kInertRanges = std::to_array<Range>({
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x11A7, 0x11A7},
    {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
});

bool is_inert(char32_t value) {
  const auto* const at =
      std::partition_point(kInertRanges.begin(), kInertRanges.end(),
                           [value](const Range& range) { return range.last < value; });
  return at != kInertRanges.end() && at->first <= value;
}

/// Code points that no composition touches, alone or beside each other.
bool is_plain(char32_t value) {
  return value < 0x300 || (value >= 0x3400 && value <= 0x9FFF) ||
         (value >= 0xAC00 && value <= 0xD7A3) || (value >= 0x3000 && value <= 0x3029) ||
         (value >= 0x3041 && value <= 0x3096) || (value >= 0x30A1 && value <= 0x30FA) ||
         (value >= 0x410 && value <= 0x44F) || (value >= 0x2010 && value <= 0x2027) ||
         (value >= 0xFF01 && value <= 0xFF5E) || (value >= 0x1F300 && value <= 0x1FAFF);
}

void append_nfc(std::string& out, std::string_view text) {
  if (text.empty()) {
    return;
  }
  utf8proc_uint8_t* composed = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  if (size < 0) {
    throw base::SystemError(
        {.where = "canonical composition of text", .what = utf8proc_errmsg(size)});
  }
  out.append(reinterpret_cast<const char*>(composed), static_cast<std::size_t>(size));
}

/// The bytes of the sequence that `lead` starts, and the range its second byte must lie in; 0 for
/// no lead byte.
struct LeadRule {
  std::size_t size = 0;
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xBF;
};

LeadRule lead_rule(unsigned char lead) {
  if (lead < 0x80) {
    return {1};
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    return {2};
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    return {3, static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    return {4, static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

/// How many bytes at `at` belong together, and whether they are a whole code point.
struct Part {
  std::size_t size = 0;
  bool whole = false;
  bool cut_by_end = false;
};

Part part_at(std::string_view bytes, std::size_t at) {
  const LeadRule rule = lead_rule(static_cast<unsigned char>(bytes[at]));
  if (rule.size == 0) {
    return {1, false, false};
  }
  for (std::size_t i = 1; i < rule.size; ++i) {
    if (at + i == bytes.size()) {
      return {i, false, true};
    }
    const auto byte = static_cast<unsigned char>(bytes[at + i]);
    const unsigned char low = i == 1 ? rule.second_low : 0x80;
    const unsigned char high = i == 1 ? rule.second_high : 0xBF;
    if (byte < low || byte > high) {
      return {i, false, false};
    }
  }
  return {rule.size, true, false};
}

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  if (lead < 0xE0) {
    return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  }
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

CodePoint code_point_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
    --at;
  }
  return code_point_at(text, at);
}

void append_utf8(std::string& out, char32_t value) {
  const auto push = [&out](char32_t byte) {
    out.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
  };
  if (value < 0x80) {
    push(value);
  } else if (value < 0x800) {
    push(0xC0 | value >> 6);
    push(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    push(0xE0 | value >> 12);
    push(0x80 | ((value >> 6) & 0x3F));
    push(0x80 | (value & 0x3F));
  } else {
    push(0xF0 | value >> 18);
    push(0x80 | ((value >> 12) & 0x3F));
    push(0x80 | ((value >> 6) & 0x3F));
    push(0x80 | (value & 0x3F));
  }
}

bool is_white_space(char32_t value) {
  return (value >= 0x09 && value <= 0x0D) || value == 0x20 || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 ||
         value == 0x2029 || value == 0x202F || value == 0x205F || value == 0x3000;
}

std::span<const AssignedRange> assigned_ranges() { return kAssignedRanges; }

bool is_surely_nfc(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (!is_plain(point.value)) {
      return false;
    }
    at += point.size;
  }
  return true;
}

std::string to_nfc(std::string_view text) {
  std::string out;
  if (is_surely_nfc(text)) {
    out = text;
    return out;
  }
  out.reserve(text.size());
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (is_inert(point.value)) {
      append_nfc(out, text.substr(begin, at - begin));
      out.append(text.substr(at, point.size));
      begin = at + point.size;
    }
    at += point.size;
  }
  append_nfc(out, text.substr(begin));
  return out;
}

std::string to_utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Part part = part_at(bytes, at);
    if (part.whole) {
      out.append(bytes.substr(at, part.size));
    } else {
      append_utf8(out, 0xFFFD);
    }
    at += part.size;
  }
  return out;
}

std::size_t complete_utf8_prefix(std::string_view bytes) {
  const std::size_t tail = std::min<std::size_t>(bytes.size(), 3);
  for (std::size_t back = 1; back <= tail; ++back) {
    const std::size_t at = bytes.size() - back;
    if ((static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) {
      continue;
    }
    return part_at(bytes, at).cut_by_end ? at : bytes.size();
  }
  return bytes.size();
}

}  // namespace longhaul::text
