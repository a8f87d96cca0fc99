// One answer: prompt ids in, tokens and text out, until a stop rule, a limit or the user ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infer/cached_decoder.h"
#include "infer/sampler.h"
#include "infer/stop_rules.h"
#include "text/tokenizer.h"

namespace longhaul::infer {

struct GenerationLimits {
  std::int64_t max_new_tokens = 2048;
  std::int64_t max_tokens = 0;  // prompt and answer together
};

enum class StopReason {
  kStopWord,     // a stop word or eos
  kNewTokens,    // max_new_tokens
  kModelLength,  // max_tokens
  kInterrupted
};

struct Answer {
  std::vector<std::int32_t> ids;  // without the token that ended it
  std::string text;               // without special tokens; always well-formed UTF-8
  StopReason reason = StopReason::kStopWord;
  std::int64_t prompt_tokens = 0;
  double prompt_s = 0;  // until the first token
  double answer_s = 0;  // all others
  /// Speed of the tokens after the first; 0 when there are none.
  [[nodiscard]] double tokens_per_s() const;
};

/// Called while an answer is made.
struct GenerationHooks {
  /// Text that is complete now; whole characters only.
  std::function<void(std::string_view text)> on_text = [](std::string_view /*text*/) {};
  /// True ends the answer.
  std::function<bool()> interrupted = [] { return false; };
};

/// Answers `prompt` (shorter than limits.max_tokens). The decoder's cache is used as far as it
/// agrees with the prompt, and holds prompt and answer afterwards.
Answer generate(CachedDecoder& decoder, const text::Tokenizer& tokenizer,
                std::span<const std::int32_t> prompt, const StopRules& stop,
                const SamplingOptions& sampling, const GenerationLimits& limits, std::int64_t row,
                const GenerationHooks& hooks);

}  // namespace longhaul::infer
