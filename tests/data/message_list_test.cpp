#include "data/message_list.h"

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

TEST(MessageList, AppendsTurnsAndTakesTheSystemMessage) {
  const auto list = base::OrderedJson::parse(
      R"([{"role": "system", "content": ""}, {"from": "human", "value": "u"}, {"role": "gpt", "content": "a"}])");
  text::Conversation conversation;
  ASSERT_TRUE(read_message_list(list, "messages", {}, conversation).ok());
  EXPECT_EQ(conversation.system, "");
  ASSERT_EQ(conversation.messages.size(), 2U);
  EXPECT_EQ(conversation.messages[1].role, text::Role::kAssistant);
}

TEST(MessageList, NamesThePlaceOfAFault) {
  const auto list = base::OrderedJson::parse(
      R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": 3}])");
  text::Conversation conversation;
  EXPECT_EQ(read_message_list(list, "messages", {}, conversation).detail,
            "messages[1]'s content is a number, expected text");
}

TEST(MessageList, RefusesPairsThatAreIncomplete) {
  const auto list =
      base::OrderedJson::parse(R"([{"human": "u", "assistant": "a"}, {"human": "u"}])");
  text::Conversation conversation;
  EXPECT_EQ(read_message_list(list, "conversation", {}, conversation).reason,
            "a message without role or content");
}

}  // namespace
}  // namespace longhaul::data
