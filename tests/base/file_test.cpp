#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/scratch.h"

namespace longhaul::base {
namespace {

namespace fs = std::filesystem;
using test::FileSizeLimit;
using test::get_file;
using test::message_of;
using test::put_file;
using test::ScratchFolder;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::size_t num_entries(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  const ScratchFolder scratch;
  const std::string text("odd\0size\n", 9);
  put_file(scratch / "f", text);
  const MappedFile file(scratch / "f");
  EXPECT_EQ(file.text(), text);
  EXPECT_EQ(file.bytes().size(), 9U);
}

TEST(MappedFile, MapsAnEmptyFileToAnEmptySpan) {
  const ScratchFolder scratch;
  put_file(scratch / "f", "");
  EXPECT_TRUE(MappedFile(scratch / "f").bytes().empty());
}

TEST(MappedFile, RefusesMissingFilesAndFoldersByName) {
  const ScratchFolder scratch;
  const std::string missing = message_of<UserError>([&] { MappedFile file(scratch / "nope"); });
  EXPECT_NE(missing.find("nope"), std::string::npos) << missing;
  const std::string folder = message_of<UserError>([&] { MappedFile file(scratch.path()); });
  EXPECT_NE(folder.find(scratch.path().string()), std::string::npos) << folder;
}

TEST(MappedFile, MovesItsMapping) {
  const ScratchFolder scratch;
  put_file(scratch / "a", "aaaa");
  put_file(scratch / "b", "b");
  MappedFile first(scratch / "a");
  MappedFile second(std::move(first));
  EXPECT_EQ(second.text(), "aaaa");
  second = MappedFile(scratch / "b");
  EXPECT_EQ(second.text(), "b");
}

TEST(MappedFile, DroppedPagesReadTheSameAgain) {
  const ScratchFolder scratch;
  std::string text(3 * 4096 + 17, 'x');
  text[5000] = 'y';
  put_file(scratch / "f", text);
  const MappedFile file(scratch / "f");
  file.drop_pages(1, text.size() - 1);
  file.drop_pages(0, text.size() + 100'000);
  file.drop_pages(text.size(), 0);
  EXPECT_EQ(file.text(), text);
}

TEST(ReadFile, ReadsWholeFilesLargerThanItsBuffer) {
  const ScratchFolder scratch;
  std::string text(200'003, 'z');
  text[65'536] = '\0';
  put_file(scratch / "f", text);
  EXPECT_EQ(read_file(scratch / "f"), text);
  EXPECT_THROW(read_file(scratch / "g"), UserError);
  EXPECT_THROW(read_file(scratch.path()), UserError);
}

TEST(WriteFileAtomically, ReplacesTheFileAndLeavesNothingElse) {
  const ScratchFolder scratch;
  write_file_atomically(scratch / "f", "one");
  write_file_atomically(scratch / "f", "two");
  EXPECT_EQ(get_file(scratch / "f"), "two");
  EXPECT_EQ(num_entries(scratch.path()), 1U);
}

TEST(WriteFileAtomically, OnAFullDiskKeepsTheOldFileAndLeavesNothingElse) {
  const ScratchFolder scratch;
  write_file_atomically(scratch / "f", "old");
  {
    const FileSizeLimit limit(1000);
    const std::string message = message_of<SystemError>(
        [&] { write_file_atomically(scratch / "f", std::string(5000, 'x')); });
    EXPECT_NE(message.find((scratch / "f").string()), std::string::npos) << message;
    EXPECT_NE(message.find("ulimit -f"), std::string::npos) << message;
  }
  EXPECT_EQ(get_file(scratch / "f"), "old");
  EXPECT_EQ(num_entries(scratch.path()), 1U);
}

TEST(WriteFileAtomically, InAMissingFolderIsASystemError) {
  const ScratchFolder scratch;
  EXPECT_THROW(write_file_atomically(scratch / "no/f", "x"), SystemError);
}

TEST(WriteFully, NamesTheFileWhenTheDiskIsFull) {
  const int fd = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::string message = message_of<SystemError>([&] { write_fully(fd, "x", "my/file"); });
  ::close(fd);
  EXPECT_EQ(message.rfind("my/file: ", 0), 0U) << message;
}

TEST(WriteFully, RetriesShortWrites) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text(1'000'003, 'p');
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    write_fully(ends[1], text, "pipe");
    ::_exit(0);
  }
  ::close(ends[1]);
  std::size_t total = 0;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    total += static_cast<std::size_t>(got);
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(total, text.size());
}

TEST(MakeFolder, MakesParentsAndAcceptsAnExistingFolder) {
  const ScratchFolder scratch;
  make_folder(scratch / "a/b/c");
  make_folder(scratch / "a/b/c");
  EXPECT_TRUE(fs::is_directory(scratch / "a/b/c"));
}

TEST(MakeFolder, WithAFileInTheWayIsASystemError) {
  const ScratchFolder scratch;
  put_file(scratch / "f", "");
  EXPECT_THROW(make_folder(scratch / "f/sub"), SystemError);
  EXPECT_THROW(make_folder(scratch / "f"), SystemError);
}

TEST(PendingFolder, AppearsWholeWhenPublished) {
  const ScratchFolder scratch;
  {
    PendingFolder pending(scratch / "out");
    EXPECT_FALSE(fs::exists(scratch / "out"));
    put_file(pending.path() / "a", "1");
    make_folder(pending.path() / "sub");
    put_file(pending.path() / "sub/b", "2");
    pending.publish();
  }
  EXPECT_EQ(get_file(scratch / "out/a"), "1");
  EXPECT_EQ(get_file(scratch / "out/sub/b"), "2");
  EXPECT_EQ(num_entries(scratch.path()), 1U);
}

TEST(PendingFolder, LeavesNothingWhenGivenUp) {
  const ScratchFolder scratch;
  {
    const PendingFolder pending(scratch / "out");
    put_file(pending.path() / "a", "1");
  }
  EXPECT_EQ(num_entries(scratch.path()), 0U);
}

TEST(PendingFolder, NeverReplacesAFolderWithContent) {
  const ScratchFolder scratch;
  make_folder(scratch / "out");
  put_file(scratch / "out/kept", "k");
  PendingFolder pending(scratch / "out");
  put_file(pending.path() / "a", "1");
  EXPECT_THROW(pending.publish(), SystemError);
  EXPECT_EQ(get_file(scratch / "out/kept"), "k");
  EXPECT_FALSE(fs::exists(scratch / "out/a"));
}

TEST(PendingFolder, AfterACrashTheFinalNameIsAbsentAndTheNextTryStartsClean) {
  const ScratchFolder scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    const PendingFolder pending(scratch / "out");
    put_file(pending.path() / "half", "1");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(scratch / "out"));
  EXPECT_EQ(num_entries(scratch.path()), 1U);  // the left-over

  PendingFolder pending(scratch / "out");
  EXPECT_EQ(num_entries(pending.path()), 0U);
  pending.publish();
  EXPECT_FALSE(fs::exists(scratch / "out/half"));
  EXPECT_EQ(num_entries(scratch.path()), 1U);
}

TEST(Checksum, GivesThePublishedValueOfXxh3) {
  // XXH3-64 with seed 0 of the empty input, from the specification's reference implementation.
  EXPECT_EQ(checksum({}), "2d06800538d394c2");
}

TEST(Checksum, IsTheSameForBytesTextAndFile) {
  const ScratchFolder scratch;
  std::string text;
  for (int i = 0; i < 3'000'001; ++i) {
    text += static_cast<char>(i * 31 + (i >> 8));
  }
  put_file(scratch / "f", text);
  const std::string sum = checksum_file(scratch / "f");
  EXPECT_EQ(sum.size(), 16U);
  EXPECT_EQ(checksum(as_bytes(text)), sum);
  EXPECT_EQ(checksum_text(text), sum);
  text[1'234'567] = static_cast<char>(text[1'234'567] ^ 1);
  EXPECT_NE(checksum_text(text), sum);
  EXPECT_THROW(checksum_file(scratch / "missing"), UserError);
}

}  // namespace
}  // namespace longhaul::base
