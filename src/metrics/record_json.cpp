#include "metrics/record_json.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "metrics/duration.h"

namespace longhaul::metrics {
namespace {

using base::OrderedJson;

constexpr const char* kProgressKey = "global_step/max_steps";

OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

std::string progress(std::int64_t step, std::int64_t max_steps) {
  return fmt::format("{}/{}", step, max_steps);
}

/// Takes typed values out of an object and remembers the first key whose value has the wrong type.
class Fields {
 public:
  explicit Fields(const OrderedJson& json) : json_(json) {}

  [[nodiscard]] const std::string& fault() const { return fault_; }
  [[nodiscard]] bool has(const char* key) const { return json_.contains(key); }

  void read(const char* key, double& out) {
    const OrderedJson* value = find(key);
    if (value == nullptr) {
      return;
    }
    if (value->is_null()) {
      out = std::numeric_limits<double>::quiet_NaN();
    } else if (value->is_number()) {
      out = value->get<double>();
    } else {
      blame(key);
    }
  }
  void read(const char* key, std::optional<double>& out) {
    const OrderedJson* value = find(key);
    if (value != nullptr && !value->is_null()) {
      out.emplace();
      read(key, *out);
    }
  }
  void read(const char* key, std::int64_t& out) {
    const OrderedJson* value = find(key);
    if (value == nullptr) {
      return;
    }
    if (value->is_number_integer()) {
      out = value->get<std::int64_t>();
    } else {
      blame(key);
    }
  }
  void read(const char* key, std::string& out) {
    const OrderedJson* value = find(key);
    if (value == nullptr || value->is_null()) {
      return;
    }
    if (value->is_string()) {
      out = value->get<std::string>();
    } else {
      blame(key);
    }
  }
  void read_duration(const char* key, double& out) {
    std::string text;
    read(key, text);
    out = parse_duration(text).value_or(std::numeric_limits<double>::quiet_NaN());
  }
  void read_progress(std::int64_t& step, std::int64_t& max_steps) {
    std::string text;
    read(kProgressKey, text);
    const char* end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, step);
    const bool slash = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
    if (!slash) {
      blame(kProgressKey);
      return;
    }
    const auto second = std::from_chars(first.ptr + 1, end, max_steps);
    if (second.ec != std::errc() || second.ptr != end) {
      blame(kProgressKey);
    }
  }

 private:
  [[nodiscard]] const OrderedJson* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() ? nullptr : &*at;
  }
  void blame(const char* key) {
    if (fault_.empty()) {
      fault_ = fmt::format("wrong value of '{}'", key);
    }
  }

  const OrderedJson& json_;
  std::string fault_;
};

StepRecord read_step(Fields& fields) {
  StepRecord record;
  fields.read("loss", record.loss);
  fields.read("grad_norm", record.grad_norm);
  fields.read("learning_rate", record.learning_rate);
  fields.read("token_acc", record.token_acc);
  fields.read("epoch", record.epoch);
  fields.read_progress(record.global_step, record.max_steps);
  fields.read_duration("elapsed_time", record.elapsed_s);
  fields.read_duration("remaining_time", record.remaining_s);
  fields.read("memory(GiB)", record.memory_gib);
  fields.read("train_speed(s/it)", record.train_speed_s_per_it);
  fields.read("tokens", record.tokens);
  fields.read("target_tokens", record.target_tokens);
  fields.read("tokens_per_second", record.tokens_per_second);
  fields.read("tokens_per_second_per_device", record.tokens_per_second_per_device);
  fields.read("mfu", record.mfu);
  fields.read("host_memory(GiB)", record.host_memory_gib);
  fields.read("comm_share", record.comm_share);
  fields.read("comm_gb_per_s", record.comm_gb_per_s);
  fields.read("sp", record.sp);
  fields.read("dp", record.dp);
  return record;
}

EvalRecord read_eval(Fields& fields) {
  EvalRecord record;
  fields.read("eval_loss", record.eval_loss);
  fields.read("eval_token_acc", record.eval_token_acc);
  fields.read("eval_runtime", record.eval_runtime_s);
  fields.read("epoch", record.epoch);
  fields.read_progress(record.global_step, record.max_steps);
  return record;
}

RunSummary read_summary(Fields& fields) {
  RunSummary summary;
  fields.read("last_model_checkpoint", summary.last_model_checkpoint);
  fields.read("best_model_checkpoint", summary.best_model_checkpoint);
  fields.read("best_metric", summary.best_metric);
  fields.read("global_step", summary.global_step);
  fields.read("total_parameters", summary.total_parameters);
  fields.read("trainable_parameters", summary.trainable_parameters);
  return summary;
}

}  // namespace

OrderedJson to_json(const StepRecord& record) {
  OrderedJson json;
  json["loss"] = number(record.loss);
  json["grad_norm"] = number(record.grad_norm);
  json["learning_rate"] = number(record.learning_rate);
  json["token_acc"] = number(record.token_acc);
  json["epoch"] = number(record.epoch);
  json[kProgressKey] = progress(record.global_step, record.max_steps);
  json["elapsed_time"] = format_duration(record.elapsed_s);
  json["remaining_time"] = format_duration(record.remaining_s);
  json["memory(GiB)"] = number(record.memory_gib);
  json["train_speed(s/it)"] = number(record.train_speed_s_per_it);
  json["tokens"] = record.tokens;
  json["target_tokens"] = record.target_tokens;
  json["tokens_per_second"] = number(record.tokens_per_second);
  json["tokens_per_second_per_device"] = number(record.tokens_per_second_per_device);
  json["mfu"] = record.mfu ? number(*record.mfu) : OrderedJson(nullptr);
  json["host_memory(GiB)"] = number(record.host_memory_gib);
  json["comm_share"] = number(record.comm_share);
  json["comm_gb_per_s"] = number(record.comm_gb_per_s);
  json["sp"] = record.sp;
  json["dp"] = record.dp;
  return json;
}

OrderedJson to_json(const EvalRecord& record) {
  OrderedJson json;
  json["eval_loss"] = number(record.eval_loss);
  json["eval_token_acc"] = number(record.eval_token_acc);
  json["eval_runtime"] = number(record.eval_runtime_s);
  json["epoch"] = number(record.epoch);
  json[kProgressKey] = progress(record.global_step, record.max_steps);
  return json;
}

OrderedJson to_json(const RunSummary& summary) {
  OrderedJson json;
  json["last_model_checkpoint"] = text_or_null(summary.last_model_checkpoint);
  json["best_model_checkpoint"] = text_or_null(summary.best_model_checkpoint);
  json["best_metric"] = summary.best_metric ? number(*summary.best_metric) : OrderedJson(nullptr);
  json["global_step"] = summary.global_step;
  json["total_parameters"] = summary.total_parameters;
  json["trainable_parameters"] = summary.trainable_parameters;
  return json;
}

std::optional<LogLine> from_json(const OrderedJson& json, std::string& reason) {
  if (!json.is_object()) {
    reason = "not an object";
    return std::nullopt;
  }
  Fields fields(json);
  std::optional<LogLine> line;
  if (fields.has("last_model_checkpoint")) {
    line = read_summary(fields);
  } else if (fields.has("eval_loss")) {
    line = read_eval(fields);
  } else if (fields.has("loss")) {
    line = read_step(fields);
  } else {
    reason = "neither 'loss' nor 'eval_loss' nor 'last_model_checkpoint'";
    return std::nullopt;
  }
  if (!fields.fault().empty()) {
    reason = fields.fault();
    return std::nullopt;
  }
  return line;
}

Scalars scalars(const StepRecord& record) {
  Scalars out = {{"train/loss", record.loss},
                 {"train/grad_norm", record.grad_norm},
                 {"train/learning_rate", record.learning_rate},
                 {"train/token_acc", record.token_acc},
                 {"train/epoch", record.epoch},
                 {"train/tokens_per_second", record.tokens_per_second},
                 {"train/tokens_per_second_per_device", record.tokens_per_second_per_device},
                 {"train/train_speed(s/it)", record.train_speed_s_per_it},
                 {"train/memory(GiB)", record.memory_gib},
                 {"train/host_memory(GiB)", record.host_memory_gib},
                 {"train/comm_share", record.comm_share},
                 {"train/comm_gb_per_s", record.comm_gb_per_s}};
  if (record.mfu) {
    out.emplace_back("train/mfu", *record.mfu);
  }
  return out;
}

Scalars scalars(const EvalRecord& record) {
  return {{"eval/loss", record.eval_loss},
          {"eval/token_acc", record.eval_token_acc},
          {"eval/runtime", record.eval_runtime_s}};
}

}  // namespace longhaul::metrics
