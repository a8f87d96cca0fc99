#include "metrics/jsonl_reader.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/scratch.h"
#include "metrics/records.h"

namespace longhaul::metrics {
namespace {

using test::put_file;
using test::ScratchFolder;

std::string step_line(int step) { return to_json(sample_step(step)).dump() + "\n"; }

TEST(ReadLog, SortsLinesByTheirKind) {
  const ScratchFolder scratch;
  put_file(scratch / "l", step_line(1) + to_json(sample_eval(1)).dump() + "\n\n" + step_line(2) +
                              to_json(sample_summary()).dump() + "\n");
  const RunLog log = read_log(scratch / "l");
  ASSERT_EQ(log.steps.size(), 2U);
  EXPECT_EQ(log.steps[1].global_step, 2);
  ASSERT_EQ(log.evaluations.size(), 1U);
  EXPECT_EQ(log.evaluations[0].eval_loss, sample_eval().eval_loss);
  ASSERT_TRUE(log.summary.has_value());
  EXPECT_EQ(log.summary->global_step, 100);
  EXPECT_FALSE(log.torn_last_line);
}

TEST(ReadLog, OfAnEmptyFileIsEmpty) {
  const ScratchFolder scratch;
  put_file(scratch / "l", "");
  const RunLog log = read_log(scratch / "l");
  EXPECT_TRUE(log.steps.empty());
  EXPECT_FALSE(log.torn_last_line);
}

TEST(ReadLog, ToleratesAFileCutAtAnyByte) {
  const ScratchFolder scratch;
  const std::string whole = step_line(1) + step_line(2);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put_file(scratch / "l", whole.substr(0, size));
    const RunLog log = read_log(scratch / "l");
    EXPECT_EQ(log.steps.size(), size >= step_line(1).size() ? 1U : 0U);
    EXPECT_EQ(log.torn_last_line, size != 0 && size != step_line(1).size());
  }
}

TEST(ReadLog, NamesTheLineThatIsNoRecord) {
  const ScratchFolder scratch;
  for (const char* bad : {"{\"loss\":", "{\"loss\":1}", "[]", "text", "{}"}) {
    put_file(scratch / "l", step_line(1) + "\n" + bad + "\n" + step_line(2));
    const std::string message = test::message_of<base::UserError>([&] { read_log(scratch / "l"); });
    EXPECT_EQ(message.rfind((scratch / "l").string() + ":3: ", 0), 0U) << message;
  }
  EXPECT_THROW(read_log(scratch / "missing"), base::UserError);
}

}  // namespace
}  // namespace longhaul::metrics
