#include "text/stream_decoder.h"

#include <utility>

#include "text/unicode.h"

namespace longhaul::text {

std::string StreamDecoder::push(std::int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) {
    return {};
  }
  pending_ += tokenizer_.bytes_of(id);
  const std::size_t complete = complete_utf8_prefix(pending_);
  std::string text = to_utf8_lossy(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string StreamDecoder::flush() { return to_utf8_lossy(std::exchange(pending_, {})); }

}  // namespace longhaul::text
