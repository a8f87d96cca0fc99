#include "cli/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/path_state.h"
#include "config/rules.h"
#include "train/adapter_config.h"
#include "train/checkpoint_files.h"
#include "train/run_folder.h"
#include "train/run_setup.h"

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;
using base::OrderedJson;
using base::Problem;
using base::UserError;

constexpr const char* kArgsFile = "args.json";

/// What --adapters names, when it is no adapter.
[[noreturn]] void refuse_adapter(const fs::path& folder) {
  const bool is_folder = base::is_folder(folder, "--adapters");
  Problem problem{.where = "--adapters",
                  .what = is_folder ? "no adapter_config.json in this folder" : "no such folder",
                  .got = folder.string()};
  std::error_code ignored;
  if (fs::exists(folder / "config.json", ignored)) {
    problem.hint = "This is a whole model: use --model";
  } else if (is_folder) {
    const std::vector<fs::path> checkpoints = train::list_checkpoints(folder);
    if (!checkpoints.empty()) {
      problem.hint = "Did you mean " + checkpoints.back().string() + "?";
    }
  }
  throw UserError(std::move(problem));
}

/// args.json of a run or checkpoint as settings; every look-up says whether there is a value.
class SavedArgs {
 public:
  SavedArgs(const fs::path& folder, const std::string& option)
      : where_((folder / kArgsFile).string()) {
    if (base::path_exists(folder / kArgsFile, option)) {
      json_ = train::read_args_json(folder);
    }
  }

  [[nodiscard]] bool exist() const { return !json_.is_null(); }
  [[nodiscard]] std::string text(const char* key) const {
    const OrderedJson& value = find(key);
    if (!value.is_null() && !value.is_string()) {
      refuse(key, value, "a text");
    }
    return value.is_null() ? std::string() : value.get<std::string>();
  }
  [[nodiscard]] std::optional<std::int64_t> count(const char* key) const {
    const OrderedJson& value = find(key);
    if (value.is_null()) {
      return std::nullopt;
    }
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1) {
      refuse(key, value, "a positive whole number");
    }
    return value.get<std::int64_t>();
  }
  [[nodiscard]] std::optional<bool> flag(const char* key) const {
    const OrderedJson& value = find(key);
    if (value.is_null()) {
      return std::nullopt;
    }
    if (!value.is_boolean()) {
      refuse(key, value, "true or false");
    }
    return value.get<bool>();
  }
  [[nodiscard]] std::optional<base::Dtype> weight_type(const char* key) const {
    const std::string name = text(key);
    if (name.empty()) {
      return std::nullopt;
    }
    const auto type = base::dtype_from_name(name);
    if (type != base::Dtype::kFloat32 && type != base::Dtype::kBFloat16 &&
        type != base::Dtype::kFloat16) {
      refuse(key, name, "float32, bfloat16 or float16");
    }
    return type;
  }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  [[nodiscard]] const OrderedJson& find(const char* key) const {
    static const OrderedJson absent = nullptr;
    const auto at = json_.is_object() ? json_.find(key) : json_.end();
    return at == json_.end() ? absent : *at;
  }
  [[noreturn]] void refuse(const char* key, const OrderedJson& value,
                           const std::string& expected) const {
    throw UserError(Problem{.where = where_,
                            .what = fmt::format("unusable '{}'", key),
                            .got = value.dump(),
                            .expected = expected});
  }

  std::string where_;
  OrderedJson json_ = nullptr;
};

/// The base model of an adapter: what its own file says, else what the run was given.
std::string base_model_of(const fs::path& adapter, const SavedArgs& args) {
  const std::string named = train::read_adapter_config(adapter).base_model;
  std::error_code ignored;
  for (const std::string& candidate : {named, args.text("model")}) {
    if (!candidate.empty() && fs::is_directory(candidate, ignored)) {
      return candidate;
    }
  }
  throw UserError(Problem{.where = (adapter / train::kAdapterConfigFile).string(),
                          .what = "the base model of this adapter is not here",
                          .got = named.empty() ? args.text("model") : named,
                          .expected = "a folder with config.json and weights",
                          .hint = "Name it with --model"});
}

/// Takes from args.json what was not given now.
void take_saved(const SavedArgs& args, config::Config& config) {
  if (!is_given(config, "template")) {
    config.model.template_name = args.text("template");
  }
  if (!is_given(config, "use_chat_template")) {
    config.model.use_chat_template = args.flag("use_chat_template").value_or(true);
  }
  if (!is_given(config, "system")) {
    config.model.system = args.text("system");
    if (config.model.system.ends_with(".txt") &&
        !base::path_exists(config.model.system, args.where())) {
      throw UserError(Problem{.where = args.where(),
                              .what = "the file with the system text of this run is not here",
                              .got = config.model.system,
                              .hint = "Give the text with --system"});
    }
  }
  if (!is_given(config, "torch_dtype")) {
    config.model.torch_dtype = args.weight_type("torch_dtype");
  }
  if (!is_given(config, "max_length")) {
    config.data.max_length = args.count("max_length");
  }
  if (!is_given(config, "max_model_len")) {
    config.model.max_model_len = args.count("max_model_len");
  }
}

/// Options win over args.json, args.json over the model.
void decide(ModelSource& source) {
  config::Config& config = source.config;
  config.model.torch_dtype = config.model.torch_dtype.value_or(source.model.dtype);
  const std::int64_t positions = source.model.max_position_embeddings;
  // A run may have trained longer rows than config.json speaks of.
  source.max_tokens = config.model.max_model_len.value_or(
      std::max(positions, config.data.max_length.value_or(positions)));
  source.max_length = config.data.max_length.value_or(source.max_tokens);
  config.max_length = source.max_length;
  const bool computes = config.command == config::Command::kInfer;
  if (computes && config.on_cpu() && config.model.torch_dtype == base::Dtype::kFloat16) {
    throw UserError(Problem{.where = "--torch_dtype",
                            .what = "float16 computes on GPUs only",
                            .got = "float16",
                            .expected = "float32 or bfloat16 on CPU ranks"});
  }
}

}  // namespace

ModelSource find_model(const config::Config& given) {
  ModelSource source;
  source.config = given;
  config::Config& config = source.config;
  const fs::path adapter = config.tuning.adapters;
  const bool has_adapter = !adapter.empty();
  if (has_adapter && !base::path_exists(adapter / train::kAdapterConfigFile, "--adapters")) {
    refuse_adapter(adapter);
  }
  const SavedArgs args(has_adapter ? adapter : fs::path(config.model.model),
                       has_adapter ? "--adapters" : "--model");
  if (has_adapter || args.exist()) {
    source.checkpoint = has_adapter ? adapter : fs::path(config.model.model);
  }
  if (config.model.model.empty()) {
    config.model.model = base_model_of(adapter, args);
  }
  take_saved(args, config);
  source.model = config::read_model_config(config.model.model);
  decide(source);
  if (has_adapter) {
    const train::TuningSetup tuning = train::make_tuning_setup(config, source.model);
    source.adapter = infer::AdapterSource{adapter, *tuning.spec.lora};
    source.note = tuning.note;
  }
  return source;
}

}  // namespace longhaul::cli
