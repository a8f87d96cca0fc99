#include "train/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/path_state.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;
using base::OrderedJson;
using base::Problem;

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kSuffixA = ".lora_A.weight";
constexpr std::string_view kSuffixB = ".lora_B.weight";

/// Keys that are read, or that say nothing about the mathematics.
constexpr std::array kUnderstood = {"base_model_name_or_path",
                                    "bias",
                                    "inference_mode",
                                    "init_lora_weights",
                                    "lora_alpha",
                                    "lora_dropout",
                                    "megatron_core",
                                    "modules_to_save",
                                    "peft_type",
                                    "peft_version",
                                    "qalora_group_size",
                                    "r",
                                    "revision",
                                    "target_modules",
                                    "task_type",
                                    "use_rslora",
                                    "auto_mapping",
                                    "runtime_config"};

bool is_understood(const std::string& key) {
  for (const std::string_view known : kUnderstood) {
    if (key == known) {
      return true;
    }
  }
  return false;
}

/// null, false, {} and [] switch a feature of PEFT off.
bool is_off(const OrderedJson& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

std::string shown(const OrderedJson& value) {
  constexpr std::size_t kMaxShown = 80;
  std::string text = value.dump(-1, ' ', true);
  return text.size() <= kMaxShown ? text : text.substr(0, kMaxShown) + "...";
}

/// Takes the values out of the file and collects every problem, so that all are told at once.
class Reader {
 public:
  Reader(const OrderedJson& json, std::string where) : json_(json), where_(std::move(where)) {}

  [[nodiscard]] const std::vector<Problem>& problems() const { return problems_; }
  [[nodiscard]] const OrderedJson& value(const char* key) const {
    static const OrderedJson kAbsent = nullptr;
    const auto at = json_.find(key);
    return at == json_.end() ? kAbsent : *at;
  }
  void blame(const char* key, const std::string& expected) {
    problems_.push_back({.where = where_,
                         .what = fmt::format("unusable '{}'", key),
                         .got = json_.contains(key) ? shown(value(key)) : "nothing",
                         .expected = expected});
  }
  void blame_feature(const std::string& key) {
    problems_.push_back({.where = where_,
                         .what = fmt::format("'{}' is not supported", key),
                         .got = shown(json_.at(key)),
                         .hint = "Only plain LoRA adapters can be used"});
  }

  std::string text(const char* key) {
    if (value(key).is_string()) {
      return value(key).get<std::string>();
    }
    if (!value(key).is_null()) {
      blame(key, "a text or null");
    }
    return {};
  }
  double number(const char* key, double low, double high, double fallback) {
    const OrderedJson& found = value(key);
    if (found.is_null() && !std::isnan(fallback)) {
      return fallback;
    }
    const double result = found.is_number() ? found.get<double>() : -HUGE_VAL;
    if (!(result >= low && result <= high)) {
      blame(key, fmt::format("a number from {} to {}", low, high));
      return low;
    }
    return result;
  }
  bool flag(const char* key) {
    if (!value(key).is_boolean() && !value(key).is_null()) {
      blame(key, "true or false");
    }
    return value(key) == true;
  }
  std::vector<std::string> names(const char* key) {
    std::vector<std::string> out;
    if (value(key).is_null()) {
      return out;
    }
    bool all_texts = value(key).is_array();
    if (all_texts) {
      for (const OrderedJson& name : value(key)) {
        all_texts = all_texts && name.is_string();
        out.push_back(name.is_string() ? name.get<std::string>() : "");
      }
    }
    if (!all_texts) {
      blame(key, "a list of module names");
    }
    return out;
  }

 private:
  const OrderedJson& json_;
  std::string where_;
  std::vector<Problem> problems_;
};

/// An initialisation that changes the base model makes the saved A and B meaningless on the plain
/// base.
bool keeps_base(const OrderedJson& init) {
  return init.is_null() || init.is_boolean() || init == "gaussian" || init == "eva" ||
         init == "orthogonal";
}

void check_kind(Reader& reader, const OrderedJson& json) {
  if (reader.value("peft_type") != "LORA") {
    reader.blame("peft_type", "\"LORA\"");
  }
  if (!reader.value("task_type").is_null() && reader.value("task_type") != "CAUSAL_LM") {
    reader.blame("task_type", "\"CAUSAL_LM\"");
  }
  if (!reader.value("bias").is_null() && reader.value("bias") != "none") {
    reader.blame("bias", "\"none\"");
  }
  if (!keeps_base(reader.value("init_lora_weights"))) {
    reader.blame("init_lora_weights", "true, or another start that leaves the base model as it is");
  }
  for (const auto& [key, value] : json.items()) {
    if (!is_understood(key) && !is_off(value)) {
      reader.blame_feature(key);
    }
  }
}

void read_targets(Reader& reader, AdapterConfig& config) {
  if (reader.value("target_modules").is_string()) {
    config.target_regex = reader.value("target_modules").get<std::string>();
    return;
  }
  config.target_modules = reader.names("target_modules");
  if (config.target_modules.empty()) {
    reader.blame("target_modules", "module names or a regular expression");
  }
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

OrderedJson whole_if_possible(double value) {
  constexpr double kExact = 9e15;
  return value == std::floor(value) && std::abs(value) < kExact
             ? OrderedJson(static_cast<std::int64_t>(value))
             : OrderedJson(value);
}

/// The model's name in a folder or hub id.
std::string model_name(const fs::path& path) {
  constexpr std::string_view kCachePrefix = "models--";
  const fs::path folder = base::without_slash(path.lexically_normal());
  const std::string repository = folder.parent_path().parent_path().filename().string();
  if (folder.parent_path().filename() == "snapshots" && repository.starts_with(kCachePrefix)) {
    return repository.substr(repository.rfind("--") + 2);
  }
  return folder.filename().string();
}

/// As written, and with links followed where there is such a folder.
std::set<std::string> model_names(const std::string& path) {
  std::error_code is_no_folder;
  const fs::path real = fs::canonical(path, is_no_folder);
  std::set<std::string> names{model_name(is_no_folder ? fs::path(path) : real)};
  if (fs::path(path).lexically_normal() != ".") {
    names.insert(model_name(path));
  }
  return names;
}

}  // namespace

void write_adapter_config(const fs::path& folder, const AdapterConfig& config) {
  LONGHAUL_ASSERT(config.target_modules.empty() == config.target_regex.has_value(),
                  "an adapter has either target names or an expression");
  OrderedJson json;
  json["alpha_pattern"] = OrderedJson::object();
  json["auto_mapping"] = nullptr;
  json["base_model_name_or_path"] = text_or_null(config.base_model);
  json["bias"] = "none";
  json["fan_in_fan_out"] = false;
  json["inference_mode"] = true;
  json["init_lora_weights"] = true;
  json["layers_pattern"] = nullptr;
  json["layers_to_transform"] = nullptr;
  json["lora_alpha"] = whole_if_possible(config.alpha);
  json["lora_dropout"] = config.dropout;
  json["modules_to_save"] =
      config.modules_to_save.empty() ? OrderedJson(nullptr) : OrderedJson(config.modules_to_save);
  json["peft_type"] = "LORA";
  json["r"] = config.rank;
  json["rank_pattern"] = OrderedJson::object();
  json["revision"] = text_or_null(config.revision);
  json["target_modules"] =
      config.target_regex ? OrderedJson(*config.target_regex) : OrderedJson(config.target_modules);
  json["task_type"] = "CAUSAL_LM";
  json["use_rslora"] = config.use_rslora;
  base::write_file_atomically(folder / kAdapterConfigFile, json.dump(2) + "\n");
}

AdapterConfig read_adapter_config(const fs::path& folder) {
  const fs::path path = folder / kAdapterConfigFile;
  const OrderedJson json = base::parse_ordered_json(base::read_file(path), path.string());
  if (!json.is_object()) {
    throw base::UserError(Problem{.where = path.string(), .what = "not an object"});
  }
  constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();
  constexpr double kMaxRank = 1 << 20;
  Reader reader(json, path.string());
  AdapterConfig config;
  check_kind(reader, json);
  config.base_model = reader.text("base_model_name_or_path");
  config.revision = reader.text("revision");
  config.rank = static_cast<std::int64_t>(reader.number("r", 1, kMaxRank, kRequired));
  if (reader.value("r").is_number_float()) {
    reader.blame("r", "a whole number");
  }
  config.alpha = reader.number("lora_alpha", 0, 1e9, kRequired);
  config.dropout = reader.number("lora_dropout", 0, 1, 0);
  config.use_rslora = reader.flag("use_rslora");
  config.modules_to_save = reader.names("modules_to_save");
  read_targets(reader, config);
  if (!reader.problems().empty()) {
    throw base::UserError(reader.problems());
  }
  return config;
}

bool is_same_model(const std::string& one, const std::string& other) {
  if (one.empty() || other.empty()) {
    return true;
  }
  const std::set<std::string> names = model_names(one);
  const std::set<std::string> others = model_names(other);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return others.contains(name); });
}

std::string adapter_tensor_name(AdapterPart part, const std::string& target) {
  std::string name = std::string(kPrefix) + target;
  if (part == AdapterPart::kLoraA) {
    name += kSuffixA;
  } else if (part == AdapterPart::kLoraB) {
    name += kSuffixB;
  }
  return name;
}

std::optional<AdapterTensor> parse_adapter_tensor_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  std::string target = name.substr(kPrefix.size());
  for (const auto& [suffix, part] :
       {std::pair{kSuffixA, AdapterPart::kLoraA}, std::pair{kSuffixB, AdapterPart::kLoraB}}) {
    if (target.size() > suffix.size() && target.ends_with(suffix)) {
      target.resize(target.size() - suffix.size());
      return AdapterTensor{.part = part, .target = std::move(target)};
    }
  }
  if (target.empty() || target.find("lora_") != std::string::npos) {
    return std::nullopt;
  }
  return AdapterTensor{.part = AdapterPart::kSaved, .target = std::move(target)};
}

}  // namespace longhaul::train
