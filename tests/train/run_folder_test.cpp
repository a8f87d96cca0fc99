#include "train/run_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/scratch.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;
using test::get_file;
using test::message_of;
using test::put_file;
using test::ScratchFolder;

constexpr std::time_t kNoon = 1'750'000'000;

/// Fixes the time zone, so that names can be compared.
class RunFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TZ", "UTC", 1);  // NOLINT(concurrency-mt-unsafe): tests of one program run one by one
    ::tzset();
  }
  [[nodiscard]] RunFolderRequest request(bool add_version = true) const {
    return {.output_dir = scratch_ / "out", .add_version = add_version, .now = kNoon};
  }
  ScratchFolder scratch_;
};

TEST_F(RunFolder, MustBeWritableBeforeAnythingIsMade) {
  RunFolderRequest blocked = request();
  put_file(scratch_ / "file", "x");
  blocked.output_dir = scratch_ / "file" / "out";
  EXPECT_THROW(check_run_folder(blocked), base::SystemError);
  EXPECT_NO_THROW(check_run_folder(request()));
}

TEST_F(RunFolder, IsNumberedAndDated) {
  const fs::path first = make_run_folder(request());
  EXPECT_EQ(first.filename(), "v0-20250615-150640");
  EXPECT_TRUE(first.is_absolute());
  EXPECT_TRUE(fs::is_directory(first));
  const fs::path second = make_run_folder(request());
  EXPECT_EQ(second.filename(), "v1-20250615-150640");
  EXPECT_EQ(newest_version(scratch_ / "out"), scratch_ / "out/v1-20250615-150640");
}

TEST_F(RunFolder, CountsFromTheLargestVersionNotFromText) {
  for (const char* name :
       {"v9-20240101-000000", "v10-20240101-000000", "v99-20240101", "v50-2024x101-000000",
        "w70-20240101-000000", "v-20240101-000000", "vx-20240101-000000", "v-5-20240101-000000"}) {
    base::make_folder(scratch_ / "out" / name);
  }
  put_file(scratch_ / "out/v60-20240101-000000", "a file");
  EXPECT_EQ(make_run_folder(request()).filename(), "v11-20250615-150640");
}

TEST_F(RunFolder, WithoutVersionIsTheOutputFolderItself) {
  const fs::path made = make_run_folder(request(false));
  EXPECT_EQ(made, fs::canonical(scratch_ / "out"));
  put_file(scratch_ / "out/notes.txt", "mine");
  EXPECT_EQ(make_run_folder(request(false)), fs::canonical(scratch_ / "out"));
}

TEST_F(RunFolder, WithoutVersionRefusesAFolderThatHoldsARun) {
  for (const char* mark : {"args.json", "logging.jsonl", "checkpoint-5"}) {
    const ScratchFolder other;
    base::make_folder(other / "out");
    if (std::string(mark) == "checkpoint-5") {
      base::make_folder(other / "out/checkpoint-5");
    } else {
      put_file(other / "out" / mark, "{}");
    }
    const RunFolderRequest taken{.output_dir = other / "out", .add_version = false};
    const std::string message = message_of<base::UserError>([&] { make_run_folder(taken); });
    EXPECT_EQ(message.rfind("--output_dir: ", 0), 0U) << message;
    EXPECT_NE(message.find(taken.output_dir.string()), std::string::npos) << message;
  }
}

TEST_F(RunFolder, WithoutVersionAcceptsTheRunThatIsResumed) {
  base::make_folder(scratch_ / "out/checkpoint-5");
  put_file(scratch_ / "out/args.json", "{}");
  base::make_folder(scratch_ / "other/checkpoint-5");
  RunFolderRequest resumed = request(false);
  resumed.resumed_from = scratch_ / "out/checkpoint-5";
  EXPECT_NO_THROW(make_run_folder(resumed));
  resumed.resumed_from = scratch_ / "out/";
  EXPECT_NO_THROW(make_run_folder(resumed));
  resumed.resumed_from = scratch_ / "other/checkpoint-5";
  EXPECT_THROW(make_run_folder(resumed), base::UserError);
  resumed.resumed_from = scratch_ / "out2";
  EXPECT_THROW(check_run_folder(resumed), base::UserError);
}

TEST_F(RunFolder, InAnUnwritablePlaceIsASystemErrorNamingIt) {
  put_file(scratch_ / "file", "");
  const std::string in_the_way = message_of<base::SystemError>(
      [&] { make_run_folder({.output_dir = scratch_ / "file/out", .now = kNoon}); });
  EXPECT_NE(in_the_way.find((scratch_ / "file/out").string()), std::string::npos) << in_the_way;
  const std::string proc = message_of<base::SystemError>(
      [&] { make_run_folder({.output_dir = "/proc/longhaul", .now = kNoon}); });
  EXPECT_NE(proc.find("/proc/longhaul"), std::string::npos) << proc;
}

TEST_F(RunFolder, KeepsArgsInOrderWithTheVersion) {
  const fs::path folder = make_run_folder(request());
  base::OrderedJson options;
  options["model"] = "/m";
  options["lora_rank"] = 8;
  options["learning_rate"] = 1e-4;
  options["target_modules"] = {"q_proj", "v_proj"};
  write_args_json(folder, options, "0.1.0");
  const base::OrderedJson back = read_args_json(folder);
  EXPECT_EQ(back.dump(), R"({"longhaul_version":"0.1.0","model":"/m","lora_rank":8,)"
                         R"("learning_rate":0.0001,"target_modules":["q_proj","v_proj"]})");
  EXPECT_THROW(read_args_json(scratch_.path()), base::UserError);
  put_file(folder / "args.json", "[]");
  EXPECT_THROW(read_args_json(folder), base::UserError);
}

TEST_F(RunFolder, PointsLinksAtCheckpointsByName) {
  const fs::path folder = make_run_folder(request());
  base::make_folder(folder / "checkpoint-5");
  base::make_folder(folder / "checkpoint-10");
  point_symlink(folder, "last", folder / "checkpoint-5");
  point_symlink(folder, "last", folder / "checkpoint-10");
  EXPECT_EQ(fs::read_symlink(folder / "last"), "checkpoint-10");  // survives moving the run
  EXPECT_TRUE(fs::equivalent(folder / "last", folder / "checkpoint-10"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder / ".tmp-last")));
}

TEST_F(RunFolder, ReplacesADanglingLinkButNothingElse) {
  const fs::path folder = make_run_folder(request());
  fs::create_directory_symlink("checkpoint-1", folder / "best");
  point_symlink(folder, "best", folder / "checkpoint-2");
  EXPECT_EQ(fs::read_symlink(folder / "best"), "checkpoint-2");
  put_file(folder / "last", "precious");
  EXPECT_THROW(point_symlink(folder, "last", folder / "checkpoint-2"), base::SystemError);
  EXPECT_EQ(get_file(folder / "last"), "precious");
}

}  // namespace
}  // namespace longhaul::train
