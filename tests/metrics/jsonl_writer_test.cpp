#include "metrics/jsonl_writer.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "base/scratch.h"
#include "metrics/jsonl_reader.h"
#include "metrics/record_json.h"
#include "metrics/records.h"

namespace longhaul::metrics {
namespace {

using test::get_file;
using test::put_file;
using test::ScratchFolder;

TEST(JsonlWriter, WritesOneLinePerRecordVisibleAtOnce) {
  const ScratchFolder scratch;
  JsonlWriter writer(scratch / "logging.jsonl");
  std::string expected;
  writer.write(sample_step());
  expected += to_json(sample_step()).dump() + "\n";
  EXPECT_EQ(get_file(scratch / "logging.jsonl"), expected);
  writer.write(sample_eval());
  expected += to_json(sample_eval()).dump() + "\n";
  EXPECT_EQ(get_file(scratch / "logging.jsonl"), expected);
  writer.write(sample_summary());
  expected += to_json(sample_summary()).dump() + "\n";
  EXPECT_EQ(get_file(scratch / "logging.jsonl"), expected);
}

TEST(JsonlWriter, AppendsToAnOlderLog) {
  const ScratchFolder scratch;
  JsonlWriter(scratch / "l").write(sample_step(1));
  JsonlWriter(scratch / "l").write(sample_step(2));
  EXPECT_EQ(read_log(scratch / "l").steps.size(), 2U);
}

TEST(JsonlWriter, CutsOffATornLastLineBeforeAppending) {
  const ScratchFolder scratch;
  const std::string whole = to_json(sample_step(1)).dump() + "\n";
  put_file(scratch / "l", whole + whole.substr(0, 40));
  JsonlWriter(scratch / "l").write(sample_step(2));
  EXPECT_EQ(get_file(scratch / "l"), whole + to_json(sample_step(2)).dump() + "\n");
  put_file(scratch / "torn", "{\"lo");
  { const JsonlWriter writer(scratch / "torn"); }
  EXPECT_EQ(get_file(scratch / "torn"), "");
}

TEST(JsonlWriter, ContinuesAfterAStepWithoutLaterLinesAndSummary) {
  const ScratchFolder scratch;
  {
    JsonlWriter writer(scratch / "l");
    for (std::int64_t step = 1; step <= 4; ++step) {
      writer.write(sample_step(step));
      writer.write(sample_eval(step));
    }
    writer.write(sample_summary());
  }
  JsonlWriter writer = JsonlWriter::continue_after(scratch / "l", 2);
  JsonlWriter moved(std::move(writer));
  moved.write(sample_step(3));
  const RunLog log = read_log(scratch / "l");
  ASSERT_EQ(log.steps.size(), 3U);
  EXPECT_EQ(log.steps[1].global_step, 2);
  EXPECT_EQ(log.steps[2].global_step, 3);
  EXPECT_EQ(log.evaluations.size(), 2U);
  EXPECT_FALSE(log.summary.has_value());
  EXPECT_EQ(get_file(scratch / "l").find(to_json(sample_step(1)).dump()), 0U);
}

TEST(JsonlWriter, OnAFullDiskTakesTheHalfLineBackAndNamesTheFile) {
  const ScratchFolder scratch;
  JsonlWriter writer(scratch / "l");
  writer.write(sample_step(1));
  const std::string before = get_file(scratch / "l");
  {
    const test::FileSizeLimit limit(before.size() + 100);
    const std::string message =
        test::message_of<base::SystemError>([&] { writer.write(sample_step(2)); });
    EXPECT_EQ(message.rfind((scratch / "l").string() + ": ", 0), 0U) << message;
  }
  EXPECT_EQ(get_file(scratch / "l"), before);
  writer.write(sample_step(3));
  EXPECT_EQ(read_log(scratch / "l").steps.back().global_step, 3);
}

TEST(JsonlWriter, RefusesAFolderThatIsNotThere) {
  const ScratchFolder scratch;
  EXPECT_THROW(JsonlWriter(scratch / "no/l"), base::SystemError);
}

}  // namespace
}  // namespace longhaul::metrics
