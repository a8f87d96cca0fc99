#include "infer/prompt_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/tiny_folder.h"

namespace longhaul {
namespace {

text::Conversation question(std::optional<std::string> system = std::nullopt) {
  text::Conversation conversation;
  conversation.system = std::move(system);
  conversation.messages.push_back(
      {.role = text::Role::kUser, .content = "hi", .loss = std::nullopt});
  return conversation;
}

TEST(PromptEncoder, AsksWithTheTemplateAndTheGivenSystemText) {
  const text::Tokenizer tokenizer =
      text::Tokenizer::parse(testing::tiny_tokenizer_json(), "tokenizer.json");
  infer::PromptEncoder encoder(tokenizer, &text::find_template("chatml"), "be good");
  const auto ids = [&](const std::string& text) { return tokenizer.encode(text); };
  EXPECT_EQ(encoder.encode(question()),
            ids("<|im_start|>system\nbe good<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
                "<|im_start|>assistant\n"));
  EXPECT_EQ(encoder.encode(question("row")),
            ids("<|im_start|>system\nrow<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
                "<|im_start|>assistant\n"));
  EXPECT_EQ(encoder.complete(question()).system, "be good");
  EXPECT_THAT(encoder.stop_words(), ::testing::ElementsAre("<|im_end|>"));
  encoder.set_system(std::nullopt);
  EXPECT_EQ(encoder.encode(question()),
            ids("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"));
}

TEST(PromptEncoder, WithoutATemplateTakesTheTextAsItIs) {
  const text::Tokenizer tokenizer =
      text::Tokenizer::parse(testing::tiny_tokenizer_json(), "tokenizer.json");
  const infer::PromptEncoder encoder(tokenizer, nullptr, std::nullopt);
  EXPECT_EQ(encoder.encode(question()), tokenizer.encode("hi"));
  EXPECT_TRUE(encoder.stop_words().empty());
}

}  // namespace
}  // namespace longhaul
