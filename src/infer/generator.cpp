#include "infer/generator.h"

#include <array>
#include <chrono>

#include "base/error.h"
#include "text/stream_decoder.h"

namespace longhaul::infer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Ids → shown text, through character borders and stop texts.
class AnswerText {
 public:
  AnswerText(const text::Tokenizer& tokenizer, const StopRules& stop, const GenerationHooks& hooks)
      : decoder_(tokenizer, /*skip_special=*/true), filter_(stop.texts), hooks_(hooks) {}

  void push(std::int32_t id) { show(filter_.push(decoder_.push(id))); }
  void finish() {
    show(filter_.push(decoder_.flush()));
    show(filter_.flush());
  }
  [[nodiscard]] bool stopped() const { return filter_.stopped(); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void show(const std::string& text) {
    if (!text.empty()) {
      text_ += text;
      hooks_.on_text(text);
    }
  }

  text::StreamDecoder decoder_;
  StopTextFilter filter_;
  const GenerationHooks& hooks_;
  std::string text_;
};

std::span<const float> values_of(const at::Tensor& logits) {
  return {logits.data_ptr<float>(), static_cast<std::size_t>(logits.numel())};
}

}  // namespace

double Answer::tokens_per_s() const {
  return ids.size() < 2 || answer_s <= 0 ? 0 : static_cast<double>(ids.size() - 1) / answer_s;
}

Answer generate(CachedDecoder& decoder, const text::Tokenizer& tokenizer,
                std::span<const std::int32_t> prompt, const StopRules& stop,
                const SamplingOptions& sampling, const GenerationLimits& limits, std::int64_t row,
                const GenerationHooks& hooks) {
  LONGHAUL_ASSERT(static_cast<std::int64_t>(prompt.size()) < limits.max_tokens,
                  "the prompt leaves room for an answer");
  Answer answer;
  answer.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  AnswerText text(tokenizer, stop, hooks);
  auto start = Clock::now();
  at::Tensor logits = decoder.replace(prompt);
  while (true) {
    const std::int64_t position =
        answer.prompt_tokens + static_cast<std::int64_t>(answer.ids.size());
    const std::int32_t id = choose_token(values_of(logits), sampling, row, position);
    if (answer.ids.empty()) {
      answer.prompt_s = seconds_since(start);
      start = Clock::now();
    }
    if (stop.ends_at(id)) {
      answer.reason = StopReason::kStopWord;
      break;
    }
    answer.ids.push_back(id);
    text.push(id);
    if (text.stopped()) {
      answer.reason = StopReason::kStopWord;
      break;
    }
    if (static_cast<std::int64_t>(answer.ids.size()) >= limits.max_new_tokens) {
      answer.reason = StopReason::kNewTokens;
      break;
    }
    if (position + 1 >= limits.max_tokens) {
      answer.reason = StopReason::kModelLength;
      break;
    }
    if (hooks.interrupted()) {
      answer.reason = StopReason::kInterrupted;
      break;
    }
    const std::array<std::int32_t, 1> next = {id};
    logits = decoder.append(next);
  }
  text.finish();
  answer.text = text.text();
  answer.answer_s = seconds_since(start);
  return answer;
}

}  // namespace longhaul::infer
