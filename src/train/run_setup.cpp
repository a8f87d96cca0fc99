#include "train/run_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "config/validate.h"
#include "text/choose_template.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;
using base::Problem;

/// Short names when they select exactly the resolved targets, else full paths; PEFT reads both.
std::vector<std::string> target_names(const config::ModelConfig& model,
                                      const config::LoraSpec& lora) {
  std::set<std::string> names;
  for (const std::string& path : lora.target_modules) {
    names.insert(path.substr(path.rfind('.') + 1));
  }
  std::vector<std::string> list(names.begin(), names.end());
  std::vector<std::string> selected = config::resolve_target_modules(model, list);
  std::vector<std::string> wanted = lora.target_modules;
  std::sort(selected.begin(), selected.end());
  std::sort(wanted.begin(), wanted.end());
  return selected == wanted ? list : lora.target_modules;
}

std::string base_model_name(const config::Config& config) {
  std::error_code is_no_folder;
  const fs::path folder = fs::canonical(config.model.model, is_no_folder);
  return is_no_folder ? config.model.model : folder.string();
}

config::LoraSpec lora_from_adapter(const AdapterConfig& adapter, const config::ModelConfig& model) {
  const std::vector<std::string> targets = adapter.target_regex
                                               ? std::vector<std::string>{*adapter.target_regex}
                                               : adapter.target_modules;
  return {.rank = adapter.rank,
          .alpha = adapter.alpha,
          .dropout = adapter.dropout,
          .rslora = adapter.use_rslora,
          .target_modules = config::resolve_target_modules(model, targets, adapter.modules_to_save),
          .modules_to_save = adapter.modules_to_save};
}

/// Explicit options that contradict the adapter.
std::vector<Problem> adapter_conflicts(const config::Config& config,
                                       const config::ModelConfig& model,
                                       const config::LoraSpec& lora) {
  std::vector<Problem> problems;
  const auto conflict = [&](const std::string& option, const std::string& got,
                            const std::string& expected) {
    problems.push_back({.where = "--" + option,
                        .what = "differs from the adapter that training starts from",
                        .got = got,
                        .expected = expected,
                        .hint = "Leave it out: the adapter's own value is used"});
  };
  const config::TuningOptions& tuning = config.tuning;
  if (tuning.lora_rank && *tuning.lora_rank != lora.rank) {
    conflict("lora_rank", std::to_string(*tuning.lora_rank), std::to_string(lora.rank));
  }
  if (tuning.lora_alpha && *tuning.lora_alpha != lora.alpha) {
    conflict("lora_alpha", fmt::format("{}", *tuning.lora_alpha), fmt::format("{}", lora.alpha));
  }
  if (tuning.lora_dropout && *tuning.lora_dropout != lora.dropout) {
    conflict("lora_dropout", fmt::format("{}", *tuning.lora_dropout),
             fmt::format("{}", lora.dropout));
  }
  if (tuning.use_rslora && *tuning.use_rslora != lora.rslora) {
    conflict("use_rslora", *tuning.use_rslora ? "true" : "false", lora.rslora ? "true" : "false");
  }
  if (!tuning.target_modules.empty()) {
    std::vector<std::string> asked =
        config::resolve_target_modules(model, tuning.target_modules, lora.modules_to_save);
    std::vector<std::string> present = lora.target_modules;
    std::sort(asked.begin(), asked.end());
    std::sort(present.begin(), present.end());
    if (asked != present) {
      conflict("target_modules", fmt::format("{} modules", asked.size()),
               fmt::format("the adapter's {} modules", present.size()));
    }
  }
  return problems;
}

std::string packing_text(const config::DataOptions& data) {
  if (!data.packing) {
    return "off";
  }
  return data.packing_strategy == config::PackingStrategy::kBinpack ? "binpack" : "sequential";
}

/// The schedule up to the number of steps, which may differ.
std::string schedule_text(const config::TrainOptions& train) {
  constexpr const char* kNames[] = {"linear", "cosine", "constant", "constant_with_warmup",
                                    "cosine_with_min_lr"};
  return fmt::format("{} {} warmup_steps {} warmup_ratio {}",
                     kNames[static_cast<std::size_t>(train.lr_scheduler_type)],
                     train.lr_scheduler_kwargs, train.warmup_steps, train.warmup_ratio);
}

}  // namespace

base::Dtype compute_dtype(const config::Config& config, const config::ModelConfig& model) {
  return config.model.torch_dtype.value_or(model.dtype);
}

TextSetup make_text_setup(const config::Config& config, const config::ModelConfig& model) {
  const fs::path folder = config.model.model;
  text::Tokenizer tokenizer = text::Tokenizer::load(folder);
  if (tokenizer.num_ids() > model.vocab_size) {
    throw base::UserError(Problem{.where = (folder / "tokenizer.json").string(),
                                  .what = "the tokenizer has ids beyond the embedding",
                                  .got = fmt::format("{} ids", tokenizer.num_ids()),
                                  .expected = fmt::format("at most {}", model.vocab_size)});
  }
  TextSetup setup;
  const text::ChatTemplate* chat_template = nullptr;
  setup.template_name = "none";
  if (config.model.use_chat_template) {
    const text::TemplateChoice choice = text::choose_template(folder, config.model.template_name);
    chat_template = choice.chat_template;
    setup.template_name = chat_template->name();
    setup.chosen_by = choice.how;
  }
  text::EncodeOptions options{.loss_scale = config.data.loss_scale,
                              .system = config.model.system.empty()
                                            ? std::nullopt
                                            : std::optional(text::system_text(config.model.system)),
                              .eos_id = std::nullopt,
                              .max_length = config.max_length,
                              .truncation = config.data.truncation_strategy};
  if (!model.eos_token_ids.empty()) {
    options.eos_id = static_cast<std::int32_t>(model.eos_token_ids.front());
  }
  setup.encoder =
      std::make_unique<text::SampleEncoder>(std::move(tokenizer), chat_template, options);
  return setup;
}

TuningSetup make_tuning_setup(const config::Config& config, const config::ModelConfig& model) {
  TuningSetup setup;
  if (config.tuning.adapters.empty()) {
    setup.spec = config::tuning_spec(config, model);
  } else {
    const AdapterConfig adapter = read_adapter_config(config.tuning.adapters);
    setup.spec.lora = lora_from_adapter(adapter, model);
    if (!is_same_model(adapter.base_model, config.model.model)) {
      setup.note = fmt::format("note: the adapter was trained on {}, --model is {}",
                               adapter.base_model, config.model.model);
    }
    std::vector<Problem> problems = adapter_conflicts(config, model, *setup.spec.lora);
    if (!problems.empty()) {
      throw base::UserError(std::move(problems));
    }
  }
  if (setup.spec.lora) {
    const config::LoraSpec& lora = *setup.spec.lora;
    setup.adapter = AdapterConfig{.base_model = base_model_name(config),
                                  .rank = lora.rank,
                                  .alpha = lora.alpha,
                                  .dropout = lora.dropout,
                                  .use_rslora = lora.rslora,
                                  .target_modules = target_names(model, lora),
                                  .modules_to_save = lora.modules_to_save};
  }
  return setup;
}

RunIdentity make_identity(const config::Config& config, const TuningSetup& tuning,
                          const TextSetup& text, const Fingerprints& fingerprints) {
  const config::TrainOptions& train = config.train;
  RunIdentity identity;
  identity["model (config.json)"] =
      base::checksum_file(fs::path(config.model.model) / "config.json");
  identity["model weights"] = fingerprints.weights;
  identity["train_type"] = config.tuning.train_type;
  identity["data"] = fingerprints.data;
  identity["template and tokenizer"] = text.encoder->identity();
  identity["max_length"] = config.max_length;
  identity["row length"] = config.row_length;
  identity["packing"] = packing_text(config.data);
  identity["seed"] = train.seed;
  identity["data_seed"] = config.data.data_seed;
  identity["dataset_shuffle"] = config.data.dataset_shuffle;
  identity["train_dataloader_shuffle"] = config.data.train_dataloader_shuffle;
  identity["sequences per step"] = config.global_batch();
  identity["torch_dtype"] =
      base::dtype_name(config.model.torch_dtype.value_or(base::Dtype::kFloat32));
  identity["learning_rate"] = config.learning_rate;
  identity["learning rate schedule"] = schedule_text(train);
  identity["neftune_noise_alpha"] = train.neftune_noise_alpha.value_or(0.0);
  identity["optimizer"] = fmt::format(
      "adamw beta1 {} beta2 {} epsilon {} weight_decay {} max_grad_norm {}", train.adam_beta1,
      train.adam_beta2, train.adam_epsilon, train.weight_decay, train.max_grad_norm);
  if (tuning.spec.lora) {
    const config::LoraSpec& lora = *tuning.spec.lora;
    identity["LoRA"] = fmt::format("rank {} alpha {} dropout {} rslora {}", lora.rank, lora.alpha,
                                   lora.dropout, lora.rslora);
    identity["LoRA targets"] = tuning.adapter->target_modules;
    identity["modules_to_save"] = lora.modules_to_save;
  } else {
    identity["frozen parameters"] =
        fmt::format("ratio {} prefixes {} regex {}", tuning.spec.freeze_ratio,
                    tuning.spec.freeze_prefixes, tuning.spec.freeze_regex);
    identity["trainable parameters"] = fmt::format(
        "prefixes {} regex {}", tuning.spec.trainable_prefixes, tuning.spec.trainable_regex);
  }
  return identity;
}

ops::AttentionKernels attention_kernels(const config::Config& config) {
  if (config.model.attn_impl == "cudnn") {
    return ops::AttentionKernels::kCudnn;
  }
  return config.model.attn_impl == "flash_attn" ? ops::AttentionKernels::kFlash
                                                : ops::AttentionKernels::kFastest;
}

}  // namespace longhaul::train
