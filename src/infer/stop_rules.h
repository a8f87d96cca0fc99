// What ends an answer: ids (eos, stop words that are one token) and texts (stop words that the
// vocabulary writes as several tokens).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace longhaul::infer {

struct StopRules {
  std::vector<std::int32_t> ids;
  std::vector<std::string> texts;
  [[nodiscard]] bool ends_at(std::int32_t id) const;
};

/// Splits a template's stop words by how the tokenizer writes them and adds the model's eos ids.
StopRules make_stop_rules(const text::Tokenizer& tokenizer, std::span<const std::string> stop_words,
                          std::span<const std::int64_t> eos_ids);

/// Passes text through until a stop text appears; holds back what may be the beginning of one.
class StopTextFilter {
 public:
  explicit StopTextFilter(std::vector<std::string> stop_texts);

  /// The text that may be shown now.
  std::string push(std::string_view text);
  /// What was held back, at the end of the answer.
  std::string flush();
  /// A stop text has appeared; it and what follows it is never shown.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stop_texts_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace longhaul::infer
