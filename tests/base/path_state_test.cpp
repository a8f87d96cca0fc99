#include "base/path_state.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/scratch.h"

namespace longhaul::base {
namespace {

namespace fs = std::filesystem;

TEST(PathState, TellsFilesFoldersAndNothingApart) {
  const test::ScratchFolder scratch;
  test::put_file(scratch / "file", "text");
  fs::create_symlink("nowhere", scratch / "dangling");
  EXPECT_EQ(look_at(scratch / "file", "--x"), fs::file_type::regular);
  EXPECT_TRUE(path_exists(scratch / "file", "--x"));
  EXPECT_FALSE(is_folder(scratch / "file", "--x"));
  EXPECT_TRUE(is_folder(scratch.path(), "--x"));
  for (const char* nothing : {"none", "file/below", "dangling"}) {
    EXPECT_FALSE(path_exists(scratch / nothing, "--x")) << nothing;
    EXPECT_FALSE(is_folder(scratch / nothing, "--x")) << nothing;
  }
}

TEST(PathState, NamesTheOptionWhenTheSystemDoesNotTell) {
  const test::ScratchFolder scratch;
  const fs::path loop = scratch / "loop";
  fs::create_symlink("loop", loop);
  const std::string message = test::message_of<UserError>([&] { path_exists(loop, "--model"); });
  EXPECT_EQ(message, "--model: cannot be looked at: Too many levels of symbolic links (got " +
                         loop.string() + ")");
  EXPECT_NE(test::message_of<UserError>([] {
              is_folder(std::string(300, 'a'), "--model");
            }).find("File name too long"),
            std::string::npos);
}

TEST(PathState, KnowsTheFoldersOfTheProcess) {
  EXPECT_TRUE(current_folder().is_absolute());
  EXPECT_TRUE(fs::is_directory(temporary_folder()));
}

}  // namespace
}  // namespace longhaul::base
