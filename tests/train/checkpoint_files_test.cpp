#include "train/checkpoint_files.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "base/json.h"
#include "base/scratch.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;
using test::get_file;
using test::message_of;
using test::put_file;
using test::ScratchFolder;

const std::vector<std::string> kFiles = {"adapter_model.safetensors", "trainer_state.json",
                                         "state/optimizer.bin", "empty"};

void fill(const fs::path& folder, std::size_t num_files, std::int64_t step) {
  base::make_folder(folder / "state");
  for (std::size_t i = 0; i < num_files; ++i) {
    put_file(folder / kFiles[i],
             kFiles[i] == "empty" ? "" : std::string(1000 + i, static_cast<char>('a' + step % 26)));
  }
}

fs::path save(const fs::path& run, std::int64_t step) {
  PendingCheckpoint pending(run, step);
  fill(pending.path(), kFiles.size(), step);
  return pending.publish();
}

std::vector<std::string> names(const std::vector<fs::path>& paths) {
  std::vector<std::string> out;
  for (const fs::path& path : paths) {
    out.push_back(path.filename().string());
  }
  return out;
}

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return names(paths);
}

TEST(Checkpoint, AppearsWholeWithAManifestOfEveryFile) {
  const ScratchFolder run;
  const fs::path checkpoint = save(run.path(), 12);
  EXPECT_EQ(checkpoint, run / "checkpoint-12");
  EXPECT_EQ(entries(run.path()), (std::vector<std::string>{"checkpoint-12"}));
  EXPECT_EQ(find_damage(checkpoint), std::nullopt);
  const auto manifest = base::parse_json(get_file(checkpoint / "manifest.json"), "manifest");
  EXPECT_EQ(manifest.at("files").size(), kFiles.size());
  EXPECT_EQ(manifest.at("files").at("state/optimizer.bin").at("size"), 1002);
  EXPECT_EQ(manifest.at("files").at("empty").at("xxh3_64"), "2d06800538d394c2");
  EXPECT_NO_THROW(require_whole(checkpoint));
}

TEST(Checkpoint, IsAbsentAfterACrashAnywhereInTheMiddle) {
  for (std::size_t num_files = 0; num_files <= kFiles.size(); ++num_files) {
    const ScratchFolder run;
    save(run.path(), 5);
    const pid_t child = ::fork();
    if (child == 0) {
      PendingCheckpoint pending(run.path(), 10);
      fill(pending.path(), num_files, 10);
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(names(list_checkpoints(run.path())), (std::vector<std::string>{"checkpoint-5"}));
    EXPECT_EQ(find_resume_point(run.path()).checkpoint.filename(), "checkpoint-5");

    EXPECT_EQ(find_damage(save(run.path(), 10)), std::nullopt);  // nothing of the crash gets in
    EXPECT_EQ(entries(run.path()), (std::vector<std::string>{"checkpoint-10", "checkpoint-5"}));
  }
}

TEST(Checkpoint, OnAFullDiskLeavesTheOlderOnesAndNothingElse) {
  const ScratchFolder run;
  save(run.path(), 5);
  const std::string before = get_file(run / "checkpoint-5/manifest.json");
  {
    const test::FileSizeLimit limit(300);  // the manifest does not fit
    EXPECT_THROW(
        {
          PendingCheckpoint pending(run.path(), 10);
          put_file(pending.path() / "small", "x");
          put_file(pending.path() / "other_small", "x");
          put_file(pending.path() / "third_small", "x");
          pending.publish();
        },
        base::SystemError);
  }
  EXPECT_EQ(entries(run.path()), (std::vector<std::string>{"checkpoint-5"}));
  EXPECT_EQ(get_file(run / "checkpoint-5/manifest.json"), before);
  EXPECT_EQ(find_damage(run / "checkpoint-5"), std::nullopt);
}

TEST(Checkpoint, OfAStepThatIsReachedAgainReplacesTheOldOne) {
  const ScratchFolder run;
  save(run.path(), 5);
  put_file(run / "checkpoint-5/empty", "damage");
  EXPECT_TRUE(find_damage(run / "checkpoint-5").has_value());
  save(run.path(), 5);
  EXPECT_EQ(find_damage(run / "checkpoint-5"), std::nullopt);
  EXPECT_EQ(entries(run.path()), (std::vector<std::string>{"checkpoint-5"}));
}

/// Every way to harm a checkpoint, with the file that must be named.
TEST(FindDamage, SeesEveryFlippedByteOfEveryFile) {
  const ScratchFolder run;
  const fs::path checkpoint = save(run.path(), 1);
  for (const std::string& name :
       {std::string("adapter_model.safetensors"), std::string("state/optimizer.bin")}) {
    const std::string good = get_file(checkpoint / name);
    for (const std::size_t at : {std::size_t{0}, good.size() / 2, good.size() - 1}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x10);
      put_file(checkpoint / name, bad);
      const auto damage = find_damage(checkpoint);
      ASSERT_TRUE(damage.has_value()) << name << at;
      EXPECT_EQ(damage->file, name);
      EXPECT_NE(damage->reason.find("checksum"), std::string::npos);
    }
    put_file(checkpoint / name, good);
  }
  EXPECT_EQ(find_damage(checkpoint), std::nullopt);
}

TEST(FindDamage, SeesTruncatedGrownAndMissingFiles) {
  const ScratchFolder run;
  const fs::path checkpoint = save(run.path(), 1);
  const std::string good = get_file(checkpoint / "trainer_state.json");
  put_file(checkpoint / "trainer_state.json", good.substr(0, good.size() - 1));
  EXPECT_EQ(find_damage(checkpoint)->file, "trainer_state.json");
  EXPECT_EQ(find_damage(checkpoint)->reason, "1000 bytes instead of 1001");
  put_file(checkpoint / "trainer_state.json", good + "x");
  EXPECT_EQ(find_damage(checkpoint)->file, "trainer_state.json");
  fs::remove(checkpoint / "trainer_state.json");
  EXPECT_EQ(find_damage(checkpoint)->file, "trainer_state.json");
  EXPECT_EQ(find_damage(checkpoint)->reason, "missing");
  base::make_folder(checkpoint / "trainer_state.json");
  EXPECT_EQ(find_damage(checkpoint)->file, "trainer_state.json");
}

TEST(FindDamage, SeesEveryFlippedByteOfTheManifestItself) {
  const ScratchFolder run;
  const fs::path checkpoint = save(run.path(), 1);
  const std::string good = get_file(checkpoint / "manifest.json");
  int unseen = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    put_file(checkpoint / "manifest.json", bad);
    const auto damage = find_damage(checkpoint);
    // White space between the tokens may change without a change of meaning.
    unseen += damage.has_value() || good[at] == ' ' || good[at] == '\n' ? 0 : 1;
    if (damage) {
      EXPECT_EQ(damage->file, "manifest.json");
    }
  }
  EXPECT_EQ(unseen, 0);
  for (const char* text : {"", "[]", "{}", "{\"format\":1,\"files\":[]}"}) {
    put_file(checkpoint / "manifest.json", text);
    EXPECT_EQ(find_damage(checkpoint)->file, "manifest.json") << text;
  }
  fs::remove(checkpoint / "manifest.json");
  EXPECT_EQ(find_damage(checkpoint)->file, "manifest.json");
}

TEST(FindDamage, LeavesLaterResultsAside) {
  const ScratchFolder run;
  const fs::path checkpoint = save(run.path(), 1);
  base::make_folder(checkpoint / "infer_result");
  put_file(checkpoint / "infer_result/today.jsonl", "{}");
  EXPECT_EQ(find_damage(checkpoint), std::nullopt);
}

TEST(RequireWhole, NamesTheFileAndAWayOut) {
  const ScratchFolder run;
  const fs::path checkpoint = save(run.path(), 1);
  put_file(checkpoint / "empty", "x");
  const std::string message = message_of<base::UserError>([&] { require_whole(checkpoint); });
  EXPECT_EQ(message.rfind((checkpoint / "empty").string() + ": ", 0), 0U) << message;
  EXPECT_NE(message.find("1 bytes instead of 0"), std::string::npos) << message;
}

TEST(ListCheckpoints, SortsByNumberAndSkipsOtherNames) {
  const ScratchFolder run;
  for (const char* name :
       {"checkpoint-100", "checkpoint-9", "checkpoint-20", "checkpoint-", "checkpoint-x",
        "checkpoint-007", "checkpoint-5-merged", ".tmp-checkpoint-300", "best", "checkpoint--1"}) {
    base::make_folder(run / name);
  }
  put_file(run / "checkpoint-400", "a file");
  fs::create_directory_symlink("checkpoint-9", run / "checkpoint-500");
  EXPECT_EQ(names(list_checkpoints(run.path())),
            (std::vector<std::string>{"checkpoint-9", "checkpoint-20", "checkpoint-100"}));
  EXPECT_TRUE(list_checkpoints(run / "missing").empty());
  EXPECT_EQ(checkpoint_step("/a/checkpoint-20"), 20);
}

TEST(FindResumePoint, TakesTheNewestWholeCheckpointAndSaysWhatItSkipped) {
  const ScratchFolder run;
  for (const std::int64_t step : {9, 20, 100}) {
    save(run.path(), step);
  }
  EXPECT_EQ(find_resume_point(run.path()).checkpoint.filename(), "checkpoint-100");
  put_file(run / "checkpoint-100/empty", "x");
  fs::remove(run / "checkpoint-20/trainer_state.json");
  const ResumePoint point = find_resume_point(run.path());
  EXPECT_EQ(point.checkpoint.filename(), "checkpoint-9");
  ASSERT_EQ(point.notes.size(), 3U);
  EXPECT_NE(point.notes[0].find("checkpoint-100: empty is damaged"), std::string::npos)
      << point.notes[0];
  EXPECT_NE(point.notes[1].find("checkpoint-20: trainer_state.json is damaged (missing)"),
            std::string::npos)
      << point.notes[1];
  EXPECT_NE(point.notes[2].find("checkpoint-9"), std::string::npos);
}

TEST(FindResumePoint, TakesANamedCheckpointOrALinkToIt) {
  const ScratchFolder run;
  save(run.path(), 9);
  save(run.path(), 20);
  EXPECT_EQ(find_resume_point(run / "checkpoint-9").checkpoint.filename(), "checkpoint-9");
  EXPECT_EQ(find_resume_point(run.path().string() + "/checkpoint-9/").checkpoint.filename(),
            "checkpoint-9");
  fs::create_directory_symlink("checkpoint-9", run / "best");
  EXPECT_EQ(find_resume_point(run / "best").checkpoint.filename(), "checkpoint-9");
  fs::rename(run / "checkpoint-9", run / "renamed");
  EXPECT_EQ(find_resume_point(run / "renamed").checkpoint.filename(), "renamed");
}

TEST(FindResumePoint, RefusesADamagedNamedCheckpointEvenWhenOthersAreWhole) {
  const ScratchFolder run;
  save(run.path(), 9);
  save(run.path(), 20);
  put_file(run / "checkpoint-20/empty", "x");
  const std::string message =
      message_of<base::UserError>([&] { find_resume_point(run / "checkpoint-20"); });
  EXPECT_NE(message.find("checkpoint-20/empty: "), std::string::npos) << message;
}

TEST(FindResumePoint, SaysWhyThereIsNone) {
  const ScratchFolder run;
  const std::string none = message_of<base::UserError>([&] { find_resume_point(run.path()); });
  EXPECT_EQ(none.rfind("--resume_from_checkpoint: no checkpoint in this folder", 0), 0U) << none;
  const std::string missing = message_of<base::UserError>([&] { find_resume_point(run / "gone"); });
  EXPECT_NE(missing.find("gone"), std::string::npos) << missing;
  save(run.path(), 9);
  fs::remove(run / "checkpoint-9/manifest.json");
  const std::string damaged = message_of<base::UserError>([&] { find_resume_point(run.path()); });
  EXPECT_NE(damaged.find("checkpoint-9: manifest.json is damaged"), std::string::npos) << damaged;
  base::make_folder(run / "out/v0-20250615-150640");
  const std::string output = message_of<base::UserError>([&] { find_resume_point(run / "out"); });
  EXPECT_NE(output.find("v0-20250615-150640"), std::string::npos) << output;
}

TEST(Prune, RemovesTheOldestButNeverBestNorLast) {
  const ScratchFolder run;
  for (const std::int64_t step : {8, 9, 10, 11, 100}) {
    save(run.path(), step);
  }
  EXPECT_TRUE(prune_checkpoints(run.path(), 5, {}).empty());
  EXPECT_EQ(names(prune_checkpoints(run.path(), 3, run / "checkpoint-8")),
            (std::vector<std::string>{"checkpoint-9", "checkpoint-10"}));
  EXPECT_EQ(entries(run.path()),
            (std::vector<std::string>{"checkpoint-100", "checkpoint-11", "checkpoint-8"}));
  EXPECT_EQ(names(prune_checkpoints(run.path(), 1, run / "checkpoint-8")),
            (std::vector<std::string>{"checkpoint-11"}));
  EXPECT_EQ(names(list_checkpoints(run.path())),
            (std::vector<std::string>{"checkpoint-8", "checkpoint-100"}));
  EXPECT_EQ(names(prune_checkpoints(run.path(), 1, run / "checkpoint-100")),
            (std::vector<std::string>{"checkpoint-8"}));
  EXPECT_TRUE(prune_checkpoints(run / "missing", 1, {}).empty());
  EXPECT_THROW(prune_checkpoints(run.path(), 0, {}), base::InternalError);
}

TEST(RemoveLeftovers, TakesUnfinishedThingsOnly) {
  const ScratchFolder run;
  save(run.path(), 9);
  base::make_folder(run / ".tmp-checkpoint-20/state");
  base::make_folder(run / ".tmp-removed-checkpoint-3/state");
  base::make_folder(run / "images");
  remove_leftovers(run.path());
  EXPECT_EQ(entries(run.path()), (std::vector<std::string>{"checkpoint-9", "images"}));
}

}  // namespace
}  // namespace longhaul::train
