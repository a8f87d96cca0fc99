// A tokenizer small enough to work out by hand: every byte is its own id, then a few merges and special tokens.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace longhaul::text {

/// Ids of tiny_tokenizer_json(): byte b has id b; merges follow from 256 in this order.
constexpr std::int32_t kHe = 256;          // h e
constexpr std::int32_t kLl = 257;          // l l
constexpr std::int32_t kHell = 258;        // he ll
constexpr std::int32_t kHello = 259;       // hell o
constexpr std::int32_t kSpaceHello = 260;  // " " hello
constexpr std::int32_t kImStart = 261;     // <|im_start|>, special
constexpr std::int32_t kImEnd = 262;       // <|im_end|>, special
constexpr std::int32_t kTag = 263;         // <tag>, not special
constexpr std::int32_t kTinyIds = 264;

inline base::Json added_token_json(std::int32_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content}, {"special", special},  {"normalized", false},
          {"lstrip", false}, {"rstrip", false},    {"single_word", false}};
}

/// tokenizer.json as an object that tests may change before parsing.
inline base::Json tiny_tokenizer_json() {
  base::Json vocabulary = base::Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(static_cast<unsigned char>(byte));
    vocabulary[to_byte_level({&c, 1})] = byte;
  }
  const std::vector<std::vector<std::string>> merges = {
      {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "hello"}};
  for (const auto& merge : merges) {
    vocabulary[merge[0] + merge[1]] = vocabulary.size();
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {added_token_json(kImStart, "<|im_start|>", true),
            added_token_json(kImEnd, "<|im_end|>", true), added_token_json(kTag, "<tag>", false)}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", true},
            {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges", merges}}}};
}

inline Tokenizer tiny_tokenizer() { return Tokenizer::parse(tiny_tokenizer_json().dump(), "tiny"); }

/// Ids of text that no merge touches: its bytes.
inline std::vector<std::int32_t> byte_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  for (const char c : text) {
    ids.push_back(static_cast<unsigned char>(c));
  }
  return ids;
}

/// Concatenation of id lists.
inline std::vector<std::int32_t> joined_ids(const std::vector<std::vector<std::int32_t>>& parts) {
  std::vector<std::int32_t> ids;
  for (const auto& part : parts) {
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

}  // namespace longhaul::text
