#include "dist/output_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>

namespace longhaul::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A pipe whose descriptors stay open: a write that was given up may still hang in it.
struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends.data()), 0); }
  [[nodiscard]] std::string read_bytes(std::size_t bytes) const {
    std::string text(bytes, '\0');
    std::size_t got = 0;
    while (got < bytes) {
      const ssize_t more = read(ends[0], text.data() + got, bytes - got);
      if (more <= 0) {
        break;
      }
      got += static_cast<std::size_t>(more);
    }
    text.resize(got);
    return text;
  }
  std::array<int, 2> ends{};
};

/// Bytes that differ along their way.
std::string text_of(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    text[i] = static_cast<char>('a' + (i / 7 + i) % 26);
  }
  return text;
}

TEST(OutputWriter, WritesEverythingInOrder) {
  const Pipe pipe;
  OutputWriter writer(pipe.ends[1]);
  const std::string text = text_of(300'001);
  for (std::size_t begin = 0; begin < text.size(); begin += 7'000) {
    writer.add(std::string_view(text).substr(begin, 7'000));
  }
  EXPECT_EQ(pipe.read_bytes(text.size()), text);
  EXPECT_TRUE(writer.wait_until_written(seconds(20)));
  EXPECT_EQ(writer.written_bytes(), text.size());
  EXPECT_EQ(writer.waiting_bytes(), 0U);
}

TEST(OutputWriter, NeverWaitsForAReaderAndSaysWhenItIsFull) {
  const Pipe pipe;
  OutputWriter writer(pipe.ends[1]);
  const std::string text = text_of(1 << 20);
  std::size_t added = 0;
  while (writer.has_room()) {
    writer.add(text);
    added += text.size();
  }
  EXPECT_GE(added, std::size_t{4} << 20);
  EXPECT_FALSE(writer.wait_until_written(milliseconds(10)));
  EXPECT_GT(writer.waiting_bytes(), 0U);
  EXPECT_EQ(pipe.read_bytes(added).size(), added);
  EXPECT_TRUE(writer.wait_until_written(seconds(20)));
  EXPECT_TRUE(writer.has_room());
}

TEST(OutputWriter, IsDestroyedAtOnceWhileAWriteHangs) {
  const Pipe pipe;
  std::optional<OutputWriter> writer(std::in_place, pipe.ends[1]);
  writer->add(text_of(1 << 20));
  EXPECT_FALSE(writer->wait_until_written(milliseconds(100)));
  writer.reset();  // a writer that waited would never come back
}

TEST(OutputWriter, WaitsForADescriptorThatDoesNotBlock) {
  const Pipe pipe;
  ASSERT_EQ(fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK), 0);
  OutputWriter writer(pipe.ends[1]);
  const std::string text = text_of(1 << 20);
  writer.add(text);
  EXPECT_FALSE(writer.wait_until_written(milliseconds(20)));
  EXPECT_EQ(pipe.read_bytes(text.size()), text);
}

TEST(OutputWriter, KeepsNothingWhenNobodyCanReadAnyMore) {
  const Pipe pipe;
  close(pipe.ends[0]);
  OutputWriter writer(pipe.ends[1]);
  writer.add(text_of(1 << 20));
  EXPECT_TRUE(writer.wait_until_written(seconds(20)));
  EXPECT_EQ(writer.written_bytes(), 0U);
  writer.add("more");
  EXPECT_EQ(writer.waiting_bytes(), 0U);
}

}  // namespace
}  // namespace longhaul::dist
