// Framing against published values; the files themselves are read with the tensorboard package in
// tensorboard_oracle.py.
#include "metrics/tensorboard_writer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/scratch.h"
#include "metrics/records.h"

namespace longhaul::metrics {
namespace {

using test::ScratchFolder;

TEST(Crc32c, GivesThePublishedAnswers) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);  // the check value of the CRC catalogue
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
}

TEST(TfRecord, FramesLengthAndBytesWithTheirChecksums) {
  const std::string record = tf_record("abc");
  ASSERT_EQ(record.size(), 8U + 4U + 3U + 4U);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

TEST(TensorBoardWriter, MakesItsFolderAndNeverReusesAFile) {
  const ScratchFolder scratch;
  const TensorBoardWriter one(scratch / "runs");
  const TensorBoardWriter two(scratch / "runs");
  EXPECT_NE(one.path(), two.path());
  EXPECT_EQ(one.path().filename().string().rfind("events.out.tfevents.", 0), 0U);
  EXPECT_EQ(one.path().parent_path(), scratch / "runs");
}

TEST(TensorBoardWriter, HandsEveryCallToTheSystemAtOnce) {
  const ScratchFolder scratch;
  TensorBoardWriter writer(scratch / "runs");
  const auto before = std::filesystem::file_size(writer.path());
  writer.write(sample_step());
  EXPECT_GT(std::filesystem::file_size(writer.path()), before + 100);
}

TEST(TensorBoardWriter, NamesTheFileOnAFullDisk) {
  const ScratchFolder scratch;
  TensorBoardWriter writer(scratch / "runs");
  const test::FileSizeLimit limit(100);
  const std::string message =
      test::message_of<base::SystemError>([&] { writer.write(sample_step()); });
  EXPECT_EQ(message.rfind(writer.path().string() + ": ", 0), 0U) << message;
}

TEST(TensorBoardWriter, WithAFileInTheWayIsASystemError) {
  const ScratchFolder scratch;
  test::put_file(scratch / "runs", "");
  EXPECT_THROW(TensorBoardWriter(scratch / "runs"), base::SystemError);
}

}  // namespace
}  // namespace longhaul::metrics
