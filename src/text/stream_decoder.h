// Ids → text while they are being generated: only whole characters come out.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace longhaul::text {

/// The concatenation of all push() results and flush() equals Tokenizer::decode of all ids.
class StreamDecoder {
 public:
  StreamDecoder(Tokenizer tokenizer, bool skip_special)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  /// Takes one id; returns the text that is complete now (often empty inside a multi-byte
  /// character).
  std::string push(std::int32_t id);
  /// The rest at the end of a generation; an unfinished character becomes U+FFFD.
  std::string flush();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::string pending_;  // bytes of an unfinished character
};

}  // namespace longhaul::text
