// Texts made of the option table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "config/options.h"

namespace longhaul::config {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ConfigDocs, AreUpToDate) {
  const std::string path = LONGHAUL_SOURCE_DIR "/docs/config.md";
  EXPECT_TRUE(base::read_file(path) == config_markdown())
      << "run: cmake --build --preset cpu --target config_docs";
}

TEST(ConfigDocs, HoldEveryOptionAndItsRange) {
  const std::string text = config_markdown();
  for (const OptionSpec& spec : option_table()) {
    EXPECT_THAT(text, HasSubstr("`--" + std::string(spec.name))) << spec.name;
  }
  EXPECT_THAT(text, HasSubstr("| `--lora_rank` | an integer from 1 to 65536 | 8 (bench: 16) |"));
  EXPECT_THAT(text, HasSubstr("(not available yet; only false is accepted)"));
}

TEST(Help, ListsTheOptionsOfOneCommandOnly) {
  const std::string help = command_help(Command::kInfer);
  EXPECT_THAT(help, HasSubstr("--max_new_tokens  an integer from 1; default: 2048"));
  EXPECT_THAT(help, Not(HasSubstr("--learning_rate")));
}

TEST(Help, NamesThePartsOfBench) {
  EXPECT_THAT(command_help(Command::kBench),
              HasSubstr("Usage: longhaul bench train|ladder|attention|exchange [OPTIONS.yaml"));
}

TEST(Help, SaysWhichCommandsAreNotThereYet) {
  EXPECT_THAT(general_help(),
              HasSubstr("web-ui   web page to start and watch runs (not available yet)"));
  EXPECT_THAT(general_help(), HasSubstr("sft      fine-tune a model\n"));
}

}  // namespace
}  // namespace longhaul::config
