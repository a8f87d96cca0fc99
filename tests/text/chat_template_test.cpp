#include "text/chat_template.h"

#include <algorithm>

#include "text/expect_refused.h"

namespace longhaul::text {
namespace {

using config::LossScale;
using testing::HasSubstr;

Conversation two_rounds() {
  return {std::nullopt,
          {{Role::kUser, "Q1", {}},
           {Role::kAssistant, "A1", {}},
           {Role::kUser, "Q2", {}},
           {Role::kAssistant, "A2", {}}}};
}

/// Pieces with the trained ones in brackets.
std::string marked(const std::vector<Piece>& pieces) {
  std::string out;
  for (const Piece& piece : pieces) {
    out += piece.loss ? "[" + piece.text + "]" : piece.text;
  }
  return out;
}

TEST(ChatTemplate, TrainsEveryAnswerWithItsWholeSuffix) {
  EXPECT_EQ(marked(find_template("chatml").render_training(two_rounds(), LossScale::kDefault)),
            "<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\n[A1<|im_end|>\n]"
            "<|im_start|>user\nQ2<|im_end|>\n<|im_start|>assistant\n[A2<|im_end|>\n]");
  EXPECT_EQ(marked(find_template("llama3").render_training(two_rounds(), LossScale::kLastRound)),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nQ1<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nQ2<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[A2<|eot_id|>]");
  EXPECT_EQ(find_template("chatml").render_training(two_rounds(), LossScale::kAll).size(), 1U);
}

TEST(ChatTemplate, MessagesMayDecideForThemselves) {
  Conversation chat = two_rounds();
  chat.messages[1].loss = false;
  chat.messages[3].loss = true;
  EXPECT_EQ(marked(find_template("chatml").render_training(chat, LossScale::kDefault)),
            "<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n"
            "<|im_start|>user\nQ2<|im_end|>\n<|im_start|>assistant\n[A2<|im_end|>\n]");
}

TEST(ChatTemplate, SystemTextIsTheRowsElseTheTemplates) {
  const Conversation chat = {std::nullopt, {{Role::kUser, "Q", {}}}};
  const Conversation with_system = {"S", chat.messages};
  const Conversation with_empty = {"", chat.messages};
  const ChatTemplate& qwen = find_template("qwen");
  const std::string rest = "<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(qwen.render_prompt(chat), "<|im_start|>system\nYou are a helpful assistant." + rest);
  EXPECT_EQ(qwen.render_prompt(with_system), "<|im_start|>system\nS" + rest);
  EXPECT_EQ(qwen.render_prompt(with_empty), "<|im_start|>system\n" + rest);
}

TEST(ChatTemplate, Qwen3PutsAnUntrainedThinkBlockBeforeAnswersThatLackOne) {
  Conversation chat = two_rounds();
  chat.messages[3].content = "<think>\nwhy\n</think>\n\nA2";
  EXPECT_EQ(marked(find_template("qwen3").render_training(chat, LossScale::kDefault)),
            "<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\n<think>\n\n</"
            "think>\n\n[A1<|im_end|>\n]"
            "<|im_start|>user\nQ2<|im_end|>\n<|im_start|>assistant\n[<think>\nwhy\n</"
            "think>\n\nA2<|im_end|>\n]");
  EXPECT_EQ(marked(find_template("qwen3_nothinking").render_training(chat, LossScale::kDefault)),
            marked(find_template("chatml").render_training(chat, LossScale::kDefault)));
}

TEST(ChatTemplate, MessageTextIsNeverTrimmed) {
  const Conversation chat = {" s \n", {{Role::kUser, " q\n", {}}, {Role::kAssistant, "\n a ", {}}}};
  for (const ChatTemplate& row : all_templates()) {
    const std::string text = marked(row.render_training(chat, LossScale::kAll));
    EXPECT_THAT(text, AllOf(HasSubstr(" s \n"), HasSubstr(" q\n<"), HasSubstr("\n a <")))
        << row.name();
  }
}

TEST(ChatTemplate, EveryRowHasAStopWordThatEndsItsAnswers) {
  const Conversation chat = two_rounds();
  for (const ChatTemplate& row : all_templates()) {
    ASSERT_FALSE(row.stop_words().empty());
    const auto pieces = row.render_training(chat, LossScale::kDefault);
    EXPECT_THAT(pieces.back().text, HasSubstr("A2" + row.stop_words().front()));
  }
}

TEST(ChatTemplate, IdentitiesDiffer) {
  std::vector<std::string> identities;
  for (const ChatTemplate& row : all_templates()) {
    identities.push_back(row.identity());
  }
  std::sort(identities.begin(), identities.end());
  EXPECT_EQ(std::adjacent_find(identities.begin(), identities.end()), identities.end());
}

TEST(ChatTemplate, UnknownNameListsAll) {
  EXPECT_THAT(refusal([] { (void)find_template("vicuna"); }),
              AllOf(HasSubstr("vicuna"),
                    HasSubstr("chatml, qwen, qwen2_5, qwen3, qwen3_nothinking, llama3"),
                    HasSubstr("smollm2")));
}

}  // namespace
}  // namespace longhaul::text
