// From options to the parts of a run: text, what trains, and what must be equal to resume.
#include "train/run_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "config/validate.h"
#include "infer/tiny_folder.h"
#include "train/tiny_run.h"

namespace longhaul::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TinyRun;
using testing::Words;

TEST(TextSetup, LoadsTokenizerAndTemplateOfTheModel) {
  const TinyRun run;
  const config::Config config = run.config("out", {"--system", "abc"});
  const TextSetup setup = make_text_setup(config, run.model());
  EXPECT_EQ(setup.template_name, "chatml");
  EXPECT_EQ(setup.encoder->tokenizer().num_ids(), 50);
  EXPECT_EQ(setup.encoder->options().system, "abc");
  EXPECT_EQ(setup.encoder->options().max_length, 100);
}

TEST(TextSetup, ReadsTheSystemTextFromATextFile) {
  const TinyRun run;
  test::put_file(run.path("system.txt"), "from a file");
  const std::string file = run.path("system.txt").string();
  EXPECT_EQ(
      make_text_setup(run.config("out", {"--system", file}), run.model()).encoder->options().system,
      "from a file");
  EXPECT_THAT(test::message_of<base::UserError>([&] {
                make_text_setup(run.config("out", {"--system", "no.such.txt"}), run.model());
              }),
              HasSubstr("no.such.txt"));
  EXPECT_EQ(make_text_setup(run.config("out"), run.model()).encoder->options().system,
            std::nullopt);
}

TEST(TextSetup, RefusesIdsBeyondTheEmbedding) {
  const TinyRun run;
  config::ModelConfig smaller = run.model();
  smaller.vocab_size = 49;
  EXPECT_THAT(
      test::message_of<base::UserError>([&] { make_text_setup(run.config("out"), smaller); }),
      AllOf(HasSubstr("tokenizer.json: the tokenizer has ids beyond the embedding"),
            HasSubstr("got 50 ids, expected at most 49")));
}

TEST(ComputeType, IsTheModelsUnlessAsked) {
  const TinyRun run("llama", base::Dtype::kBFloat16);
  const config::ModelConfig model = config::read_model_config(run.path("model"));
  EXPECT_EQ(compute_dtype(run.config("out"), model), base::Dtype::kBFloat16);
  EXPECT_EQ(compute_dtype(run.config("out", {"--torch_dtype", "float32"}), model),
            base::Dtype::kFloat32);
}

TEST(TuningSetup, DescribesANewAdapter) {
  const TinyRun run;
  const config::Config config =
      run.config("out", {"--lora_rank", "3", "--lora_alpha", "5", "--lora_dropout", "0.2",
                         "--target_modules", "q_proj", "down_proj"});
  const TuningSetup setup = make_tuning_setup(config, run.model());
  ASSERT_TRUE(setup.spec.lora && setup.adapter);
  EXPECT_EQ(setup.spec.lora->target_modules.size(), 4U);
  EXPECT_EQ(setup.adapter->rank, 3);
  EXPECT_EQ(setup.adapter->alpha, 5);
  EXPECT_EQ(setup.adapter->dropout, 0.2);
  EXPECT_THAT(setup.adapter->target_modules, ElementsAre("down_proj", "q_proj"));
  EXPECT_EQ(setup.adapter->base_model, std::filesystem::canonical(run.path("model")).string());
}

TEST(TuningSetup, WritesFullPathsWhenShortNamesWouldSelectMore) {
  const TinyRun run;
  const TuningSetup setup = make_tuning_setup(
      run.config("out", {"--target_modules", ".*layers\\.1\\.self_attn\\.q_proj"}), run.model());
  EXPECT_THAT(setup.adapter->target_modules, ElementsAre("model.layers.1.self_attn.q_proj"));
}

TEST(TuningSetup, FullFineTuningHasNoAdapter) {
  const TinyRun run;
  const TuningSetup setup = make_tuning_setup(
      run.config("out", {"--train_type", "full", "--freeze_parameters", "model.embed_tokens"}),
      run.model());
  EXPECT_FALSE(setup.adapter.has_value());
  EXPECT_FALSE(setup.spec.lora.has_value());
  EXPECT_TRUE(setup.spec.full);
  EXPECT_THAT(setup.spec.freeze_prefixes, ElementsAre("model.embed_tokens"));
}

/// A run whose model has an adapter folder beside it: rank 4, alpha 8, dropout 0.1, every linear
/// layer.
struct WithAdapter {
  WithAdapter() {
    const config::LoraSpec lora = testing::tiny_lora(run.model());
    testing::write_adapter_folder(run.path("adapter"), run.path("model").string(), lora,
                                  testing::tiny_parameters(run.model(), lora));
  }
  [[nodiscard]] config::Config config(const Words& extra = {}) const {
    Words words = {"--adapters", run.path("adapter").string()};
    words.insert(words.end(), extra.begin(), extra.end());
    return run.config("out", words);
  }
  TinyRun run;
};

TEST(TuningSetup, TakesEverythingFromAnAdapterThatItStartsFrom) {
  const WithAdapter start;
  const TuningSetup setup = make_tuning_setup(start.config(), start.run.model());
  EXPECT_EQ(setup.spec.lora->rank, 4);
  EXPECT_EQ(setup.spec.lora->alpha, 8);
  EXPECT_EQ(setup.spec.lora->dropout, 0.1);
  EXPECT_EQ(setup.spec.lora->target_modules.size(), 14U);
  EXPECT_EQ(setup.adapter->target_modules.size(), 7U);
}

TEST(TuningSetup, NotesAnAdapterOfABaseModelWithAnotherName) {
  const WithAdapter start;
  const std::filesystem::path folder = start.run.path("adapter");
  const auto note_for = [&](const std::string& base_model) {
    AdapterConfig adapter = read_adapter_config(folder);
    adapter.base_model = base_model;
    write_adapter_config(folder, adapter);
    return make_tuning_setup(start.config(), start.run.model()).note;
  };
  EXPECT_EQ(note_for(start.run.path("model").string()), "");
  EXPECT_EQ(note_for("Org/model"), "");
  EXPECT_EQ(note_for(""), "");
  EXPECT_EQ(note_for("Org/Another"), "note: the adapter was trained on Org/Another, --model is " +
                                         start.run.path("model").string());
}

TEST(TuningSetup, AcceptsExplicitOptionsThatSayTheSameAsTheAdapter) {
  const WithAdapter start;
  const TuningSetup setup = make_tuning_setup(
      start.config({"--lora_rank", "4", "--lora_alpha", "8", "--lora_dropout", "0.1",
                    "--use_rslora", "false", "--target_modules", "all-linear"}),
      start.run.model());
  EXPECT_EQ(setup.spec.lora->rank, 4);
}

TEST(TuningSetup, ListsEveryExplicitOptionThatSaysSomethingElse) {
  const WithAdapter start;
  const config::Config config =
      start.config({"--lora_rank", "5", "--lora_alpha", "9", "--lora_dropout", "0", "--use_rslora",
                    "true", "--target_modules", "q_proj"});
  const std::string error =
      test::message_of<base::UserError>([&] { make_tuning_setup(config, start.run.model()); });
  for (const char* const text :
       {"--lora_rank: differs from the adapter", "got 5, expected 4", "--lora_alpha: differs",
        "--lora_dropout: differs", "--use_rslora: differs", "--target_modules: differs"}) {
    EXPECT_THAT(error, HasSubstr(text));
  }
}

RunIdentity identity(const TinyRun& run, const Words& extra,
                     const Fingerprints& fingerprints = {.data = "data", .weights = "weights"}) {
  const config::Config config = run.config("out", extra);
  return make_identity(config, make_tuning_setup(config, run.model()),
                       make_text_setup(config, run.model()), fingerprints);
}

TEST(Identity, DoesNotDependOnWhatMayDiffer) {
  const TinyRun run;
  const RunIdentity plain = identity(run, {"--gradient_accumulation_steps", "4"});
  for (const Words& words : std::vector<Words>{
           {"--gradient_accumulation_steps", "4", "--max_steps", "99"},
           {"--gradient_accumulation_steps", "2", "--per_device_train_batch_size", "2"},
           {"--gradient_accumulation_steps", "4", "--save_steps", "3", "--save_total_limit", "1"},
           {"--gradient_accumulation_steps", "4", "--logging_steps", "7"},
           {"--gradient_accumulation_steps", "4", "--activation_policy", "D"},
           {"--gradient_accumulation_steps", "4", "--per_device_eval_batch_size", "3"},
           {"--gradient_accumulation_steps", "4", "--padding_free", "true"}}) {
    EXPECT_EQ(identity(run, words), plain) << words.back();
  }
}

TEST(Identity, NamesEverythingThatMustBeEqual) {
  const TinyRun run;
  const RunIdentity plain = identity(run, {});
  for (const Words& words : std::vector<Words>{{"--seed", "7"},
                                               {"--data_seed", "7"},
                                               {"--template", "qwen"},
                                               {"--system", "abc"},
                                               {"--max_length", "90"},
                                               {"--packing", "true"},
                                               {"--packing", "true", "--packing_length", "120"},
                                               {"--loss_scale", "all"},
                                               {"--dataset_shuffle", "false"},
                                               {"--train_dataloader_shuffle", "false"},
                                               {"--gradient_accumulation_steps", "3"},
                                               {"--learning_rate", "0.5"},
                                               {"--lr_scheduler_type", "linear"},
                                               {"--warmup_steps", "4"},
                                               {"--warmup_ratio", "0.1"},
                                               {"--weight_decay", "0.5"},
                                               {"--adam_beta1", "0.5"},
                                               {"--adam_beta2", "0.5"},
                                               {"--adam_epsilon", "0.1"},
                                               {"--max_grad_norm", "0.3"},
                                               {"--neftune_noise_alpha", "5"},
                                               {"--torch_dtype", "bfloat16"},
                                               {"--lora_rank", "2"},
                                               {"--lora_alpha", "2"},
                                               {"--lora_dropout", "0.5"},
                                               {"--use_rslora", "true"},
                                               {"--target_modules", "q_proj"},
                                               {"--modules_to_save", "lm_head"},
                                               {"--train_type", "full"}}) {
    EXPECT_NE(identity(run, words), plain) << words.front() << " " << words.back();
  }
  EXPECT_NE(identity(run, {}, {.data = "other", .weights = "weights"}), plain);
  EXPECT_NE(identity(run, {}, {.data = "data", .weights = "other"}), plain);
  const Words packed = {"--packing", "true"};
  const Words in_order = {"--packing", "true", "--packing_strategy", "sequential"};
  EXPECT_NE(identity(run, packed), identity(run, in_order));
  const Words full = {"--train_type", "full"};
  EXPECT_NE(identity(run, full),
            identity(run, {"--train_type", "full", "--freeze_parameters", "model.norm"}));
  test::put_file(run.path("model") / "config.json",
                 test::get_file(run.path("model") / "config.json") + "\n");
  EXPECT_NE(identity(run, {}), plain);
}

}  // namespace
}  // namespace longhaul::train
