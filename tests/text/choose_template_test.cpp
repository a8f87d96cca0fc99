#include "text/choose_template.h"

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "text/expect_refused.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

/// A model folder whose only file is its template.
class TemplateFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  TemplateChoice choose(const std::string& source) const {
    std::ofstream(folder_ / "chat_template.jinja") << source;
    return choose_template(folder_, "");
  }

  std::filesystem::path folder_;
};

constexpr const char* kPlainChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

TEST_F(TemplateFolder, EqualRenderingChoosesTheFirstInTheTable) {
  const TemplateChoice choice = choose(kPlainChatml);
  EXPECT_EQ(choice.chat_template->name(), "chatml");
  EXPECT_THAT(choice.how, HasSubstr("qwen3_nothinking"));
}

TEST_F(TemplateFolder, GivenNameWins) {
  const TemplateChoice choice = choose_template(folder_, "llama3");
  EXPECT_EQ(choice.chat_template->name(), "llama3");
  EXPECT_EQ(choice.how, "from --template");
  EXPECT_THAT(refusal([&] { (void)choose_template(folder_, "nope"); }), HasSubstr("nope"));
}

TEST_F(TemplateFolder, NoTemplateIsRefusedNamingTheCandidates) {
  EXPECT_THAT(refusal([&] { (void)choose_template(folder_, ""); }),
              AllOf(HasSubstr("has no chat_template"), HasSubstr("chatml, qwen, qwen2_5")));
}

TEST_F(TemplateFolder, OtherRenderingIsRefusedNamingTheCandidates) {
  const std::string once_trimmed = std::string(kPlainChatml) + " ";
  for (const std::string& source : {std::string("{{ messages[0].content }}"), once_trimmed}) {
    EXPECT_THAT(refusal([&] { (void)choose(source); }),
                AllOf(HasSubstr("chat_template.jinja"), HasSubstr("no built-in template"),
                      HasSubstr("smollm2")));
  }
}

TEST_F(TemplateFolder, UnknownConstructIsRefusedNamingItAndTheCandidates) {
  EXPECT_THAT(
      refusal([&] { (void)choose("a\n{{ messages|shuffle }}"); }),
      AllOf(HasSubstr("chat_template.jinja:2"), HasSubstr("shuffle"), HasSubstr("smollm2")));
  EXPECT_THAT(refusal([&] { (void)choose("{% include 'x' %}"); }), HasSubstr("'include'"));
  EXPECT_THAT(refusal([&] { (void)choose("{{ raise_exception('no system role') }}"); }),
              HasSubstr("no system role"));
}

TEST(ProbeChats, CoverSystemRoundsAndPrompts) {
  const auto chats = probe_chats();
  ASSERT_EQ(chats.size(), 8U);
  int with_system = 0;
  int prompts = 0;
  int two_rounds = 0;
  for (const ProbeChat& chat : chats) {
    with_system += chat.conversation.system ? 1 : 0;
    prompts += chat.wants_answer ? 1 : 0;
    two_rounds += chat.conversation.messages.size() > 2 ? 1 : 0;
    EXPECT_EQ(chat.wants_answer, chat.conversation.messages.back().role == Role::kUser);
  }
  EXPECT_EQ(with_system, 4);
  EXPECT_EQ(prompts, 4);
  EXPECT_EQ(two_rounds, 4);
}

TEST(SystemText, ReadsTextFiles) {
  const auto path = std::filesystem::path(testing::TempDir()) / "longhaul_system.txt";
  std::ofstream(path) << "from a file\n";
  EXPECT_EQ(system_text(path.string()), "from a file\n");
  EXPECT_EQ(system_text("plain text"), "plain text");
  std::ofstream(path) << "caf\xe9";
  EXPECT_THAT(refusal([&] { (void)system_text(path.string()); }),
              HasSubstr("--system: not UTF-8 text (got " + path.string() + ")"));
  std::filesystem::remove(path);
  EXPECT_THAT(refusal([&] { (void)system_text(path.string()); }), HasSubstr("longhaul_system.txt"));
}

}  // namespace
}  // namespace longhaul::text
