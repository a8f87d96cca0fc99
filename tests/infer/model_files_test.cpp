#include "infer/model_files.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/scratch.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::get_file;
using test::put_file;

TEST(ModelFiles, CopiesWhatDescribesAModelAndNothingElse) {
  const test::ScratchFolder scratch;
  base::make_folder(scratch / "from/tokenizer_cache");
  base::make_folder(scratch / "to");
  const std::vector<std::string> wanted = {"config.json",         "generation_config.json",
                                           "tokenizer.json",      "tokenizer_config.json",
                                           "tokenizer.model",     "special_tokens_map.json",
                                           "chat_template.jinja", "merges.txt",
                                           "vocab.json",          "LICENSE"};
  const std::vector<std::string> unwanted = {
      "model.safetensors",     "model.safetensors.index.json", "pytorch_model.bin", "README.md",
      "optimizer.safetensors", "trainer_state.json",           "args.json"};
  for (const auto& names : {wanted, unwanted}) {
    for (const std::string& name : names) {
      put_file(scratch / "from" / name, name + " text");
    }
  }
  infer::copy_model_files(scratch / "from", scratch / "to");
  for (const std::string& name : wanted) {
    EXPECT_EQ(get_file(scratch / "to" / name), name + " text");
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "to"), {}),
            static_cast<std::ptrdiff_t>(wanted.size()));
}

TEST(ModelFiles, ChangesOnlyWhatDiffersInTheConfig) {
  const test::ScratchFolder scratch;
  const fs::path path = scratch / "config.json";
  const std::string text = "{\"b\": 1,   \"dtype\": \"bfloat16\", \"a\": [1, 2]}";
  put_file(path, text);
  infer::adjust_config(path, {});
  EXPECT_EQ(get_file(path), text);
  infer::adjust_config(
      path, {.dtype = base::Dtype::kFloat32, .max_position_embeddings = 7, .untie = true});
  const base::OrderedJson json = base::parse_ordered_json(get_file(path), "config.json");
  EXPECT_EQ(
      json.dump(),
      R"({"b":1,"dtype":"float32","a":[1,2],"max_position_embeddings":7,"tie_word_embeddings":false})");
  put_file(path, "{\"model_type\": \"llama\"}");
  infer::adjust_config(
      path,
      {.dtype = base::Dtype::kFloat16, .max_position_embeddings = std::nullopt, .untie = false});
  EXPECT_EQ(base::parse_json(get_file(path), "config.json")["torch_dtype"], "float16");
}

TEST(ModelFiles, PublishesANewFolderOrReplacesFilesInAnOldOne) {
  const test::ScratchFolder scratch;
  const fs::path target = scratch / "model";
  {
    base::PendingFolder pending(target);
    put_file(pending.path() / "model.safetensors", "one");
    infer::publish_model(pending, target);
  }
  EXPECT_EQ(get_file(target / "model.safetensors"), "one");
  put_file(target / "other.safetensors", "not ours");
  base::PendingFolder pending(target);
  put_file(pending.path() / "model-00001-of-00002.safetensors", "two");
  infer::publish_model(pending, target);
  EXPECT_EQ(get_file(target / "model-00001-of-00002.safetensors"), "two");
  EXPECT_FALSE(fs::exists(target / "model.safetensors"));
  EXPECT_EQ(get_file(target / "other.safetensors"), "not ours");
}

TEST(ModelFiles, ReportsAFullDisk) {
  const test::ScratchFolder scratch;
  put_file(scratch / "config.json", std::string(5000, 'x'));
  const test::FileSizeLimit limit(100);
  EXPECT_THROW(infer::copy_whole_file(scratch / "config.json", scratch / "copy.json"),
               base::SystemError);
}

}  // namespace
}  // namespace longhaul
