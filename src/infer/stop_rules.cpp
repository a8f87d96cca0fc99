#include "infer/stop_rules.h"

#include <algorithm>
#include <utility>

namespace longhaul::infer {
namespace {

/// Length of the longest end of `text` that begins `stop`.
std::size_t overlap(std::string_view text, std::string_view stop) {
  for (std::size_t size = std::min(text.size(), stop.size()); size > 0; --size) {
    if (text.substr(text.size() - size) == stop.substr(0, size)) {
      return size;
    }
  }
  return 0;
}

}  // namespace

bool StopRules::ends_at(std::int32_t id) const {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

StopRules make_stop_rules(const text::Tokenizer& tokenizer, std::span<const std::string> stop_words,
                          std::span<const std::int64_t> eos_ids) {
  StopRules rules;
  const auto add_id = [&rules](std::int32_t id) {
    if (!rules.ends_at(id)) {
      rules.ids.push_back(id);
    }
  };
  for (const std::int64_t id : eos_ids) {
    add_id(static_cast<std::int32_t>(id));
  }
  for (const std::string& word : stop_words) {
    const std::vector<std::int32_t> ids = tokenizer.encode(word);
    if (ids.size() == 1) {
      add_id(ids.front());
    } else if (!word.empty()) {
      rules.texts.push_back(word);
    }
  }
  return rules;
}

StopTextFilter::StopTextFilter(std::vector<std::string> stop_texts)
    : stop_texts_(std::move(stop_texts)) {}

std::string StopTextFilter::push(std::string_view text) {
  if (stopped_) {
    return {};
  }
  held_ += text;
  std::size_t first = std::string::npos;
  std::size_t hold = 0;
  for (const std::string& stop : stop_texts_) {
    first = std::min(first, held_.find(stop));
    hold = std::max(hold, overlap(held_, stop));
  }
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  std::string shown = held_.substr(0, held_.size() - hold);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopTextFilter::flush() { return std::exchange(held_, {}); }

}  // namespace longhaul::infer
