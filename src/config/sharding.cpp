#include "config/sharding.h"

#include <set>
#include <string_view>

namespace longhaul::config {

std::string fused_name(const ParamSpec& spec) {
  const auto replace = [&](std::string_view part, std::string_view fused) {
    std::string key = spec.name;
    const auto at = key.find(part);
    return at == std::string::npos ? std::string() : key.replace(at, part.size(), fused);
  };
  if (spec.kind == ParamKind::kLoraB || spec.layer < 0) {
    return spec.name;
  }
  for (const std::string_view part : {".q_proj.", ".k_proj.", ".v_proj."}) {
    if (std::string key = replace(part, ".qkv."); !key.empty()) {
      return key;
    }
  }
  for (const std::string_view part : {".gate_proj.", ".up_proj."}) {
    if (std::string key = replace(part, ".gate_up."); !key.empty()) {
      return key;
    }
  }
  return spec.name;
}

std::vector<bool> cut_over_ranks(std::span<const ParamSpec> registry) {
  const auto is_linear = [](const ParamSpec& spec) {
    return spec.kind == ParamKind::kLinearWeight && spec.layer >= 0 && !spec.tied_to;
  };
  std::set<std::string> trained;
  for (const ParamSpec& spec : registry) {
    if (is_linear(spec) && spec.trainable) {
      trained.insert(fused_name(spec));
    }
  }
  std::vector<bool> cut;
  cut.reserve(registry.size());
  for (const ParamSpec& spec : registry) {
    cut.push_back(is_linear(spec) && !trained.contains(fused_name(spec)));
  }
  return cut;
}

std::string sharding_option(const Config& config) {
  if (config.parallel.fsdp == "fsdp2") {
    return "--fsdp fsdp2";
  }
  return config.parallel.deepspeed == "zero3" ? "--deepspeed zero3" : "";
}

bool shards_weights(const Config& config) {
  return config.mesh.ranks() > 1 && !sharding_option(config).empty();
}

}  // namespace longhaul::config
