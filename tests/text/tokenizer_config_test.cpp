#include "text/tokenizer_config.h"

#include <filesystem>
#include <fstream>

#include "text/expect_refused.h"
#include "text/tiny_tokenizer.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

class TokenizerConfigFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  std::filesystem::path folder_;
};

TEST_F(TokenizerConfigFolder, EmptyFolderSaysNothing) {
  const TokenizerConfig config = load_tokenizer_config(folder_);
  EXPECT_TRUE(config.special_tokens.empty());
  EXPECT_EQ(config.chat_template, std::nullopt);
}

TEST_F(TokenizerConfigFolder, TokensAreTextsOrObjects) {
  write(
      "tokenizer_config.json",
      R"({"bos_token": "<b>", "eos_token": {"content": "<e>", "lstrip": false}, "pad_token": null})");
  write("special_tokens_map.json", R"({"bos_token": "<other>", "unk_token": "<u>"})");
  const TokenizerConfig config = load_tokenizer_config(folder_);
  EXPECT_EQ(config.special_tokens,
            (std::map<std::string, std::string>{
                {"bos_token", "<b>"}, {"eos_token", "<e>"}, {"unk_token", "<u>"}}));
}

TEST_F(TokenizerConfigFolder, TemplateIsTheFileElseTheDefaultOfTheList) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(load_tokenizer_config(folder_).chat_template, "d");
  write("chat_template.jinja", "file");
  EXPECT_EQ(load_tokenizer_config(folder_).chat_template, "file");
  EXPECT_THAT(load_tokenizer_config(folder_).chat_template_where, HasSubstr("chat_template.jinja"));
}

TEST_F(TokenizerConfigFolder, MalformedFilesAreRefusedByName) {
  for (const auto& [text, part] : std::vector<std::pair<const char*, const char*>>{
           {"[1]", "a JSON object"},
           {"{\"eos_token\": 3}", "'eos_token'"},
           {"{\"chat_template\": 3}", "'chat_template'"},
           {"{\"chat_template\": [3]}", "chat_template"},
           {"{", "tokenizer_config.json:1"}}) {
    write("tokenizer_config.json", text);
    EXPECT_THAT(refusal([&] { (void)load_tokenizer_config(folder_); }),
                AllOf(HasSubstr("tokenizer_config.json"), HasSubstr(part)));
  }
}

TEST_F(TokenizerConfigFolder, EosComesFromTheTokenElseFromTheModelFiles) {
  const Tokenizer tokenizer = tiny_tokenizer();
  EXPECT_EQ(find_eos_id(folder_, tokenizer), std::nullopt);
  write("config.json", R"({"eos_token_id": 5})");
  EXPECT_EQ(find_eos_id(folder_, tokenizer), 5);
  write("generation_config.json", R"({"eos_token_id": [7, 8]})");
  EXPECT_EQ(find_eos_id(folder_, tokenizer), 7);
  write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  EXPECT_EQ(find_eos_id(folder_, tokenizer), kImEnd);
}

}  // namespace
}  // namespace longhaul::text
