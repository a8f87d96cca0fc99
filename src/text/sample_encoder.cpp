#include "text/sample_encoder.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "text/length_policy.h"

namespace longhaul::text {
namespace {

/// Bump when the rules of this folder change what a conversation becomes.
constexpr int kEncodingVersion = 1;

void label_from(TokenizedSample& sample, std::size_t begin, bool loss) {
  for (std::size_t i = begin; i < sample.ids.size(); ++i) {
    sample.labels.push_back(loss ? sample.ids[i] : kNoLabel);
  }
}

}  // namespace

SampleEncoder::SampleEncoder(Tokenizer tokenizer, const ChatTemplate* chat_template,
                             EncodeOptions options)
    : tokenizer_(std::move(tokenizer)),
      chat_template_(chat_template),
      options_(std::move(options)) {
  if (chat_template_ == nullptr && !options_.eos_id) {
    throw base::UserError({.where = "--use_chat_template false",
                           .what = "the tokenizer has no end-of-text token to end a text with",
                           .hint = "Set eos_token in tokenizer_config.json"});
  }
}

std::vector<Piece> SampleEncoder::pieces_of(const Conversation& conversation) const {
  if (chat_template_ != nullptr) {
    if (conversation.system || !options_.system) {
      return chat_template_->render_training(conversation, options_.loss_scale);
    }
    Conversation with_system = conversation;
    with_system.system = options_.system;
    return chat_template_->render_training(with_system, options_.loss_scale);
  }
  // Without a template the texts follow each other as they are: a template of empty strings.
  static const ChatTemplate kBare{TemplateRow{.name = "none"}};
  Conversation with_system = conversation;
  if (!with_system.system) {
    with_system.system = options_.system;
  }
  return kBare.render_training(with_system, options_.loss_scale);
}

TokenizedSample SampleEncoder::encode(const Conversation& conversation) const {
  TokenizedSample sample;
  bool last_loss = options_.loss_scale == config::LossScale::kAll;
  for (const Piece& piece : pieces_of(conversation)) {
    const std::size_t begin = sample.ids.size();
    tokenizer_.encode_to(piece.text, sample.ids);
    label_from(sample, begin, piece.loss);
    last_loss = piece.loss;
  }
  if (chat_template_ == nullptr) {
    sample.ids.push_back(*options_.eos_id);
    label_from(sample, sample.ids.size() - 1, last_loss);
  }
  if (!sample.labels.empty()) {
    sample.labels.front() = kNoLabel;
  }
  return sample;
}

TokenizedSample SampleEncoder::encode_plain(std::string_view text) const {
  TokenizedSample sample;
  tokenizer_.encode_to(text, sample.ids);
  if (options_.eos_id) {
    sample.ids.push_back(*options_.eos_id);
  }
  sample.labels = sample.ids;
  if (!sample.labels.empty()) {
    sample.labels.front() = kNoLabel;
  }
  return sample;
}

std::vector<TokenizedSample> SampleEncoder::encode_rows(const Conversation& conversation) const {
  return apply_length_policy(encode(conversation), options_.max_length, options_.truncation);
}

std::vector<TokenizedSample> SampleEncoder::encode_plain_rows(std::string_view text) const {
  return apply_length_policy(encode_plain(text), options_.max_length, options_.truncation);
}

std::string SampleEncoder::identity() const {
  return base::checksum_text(fmt::format(
      "{};{};{};{};{};{};{};{}", kEncodingVersion, tokenizer_.identity(),
      chat_template_ == nullptr ? "none" : chat_template_->identity(),
      static_cast<int>(options_.loss_scale), options_.system ? "=" + *options_.system : "",
      options_.eos_id.value_or(-1), options_.max_length, static_cast<int>(options_.truncation)));
}

}  // namespace longhaul::text
