// Rotary frequencies. transformers evaluates 1 / theta^(2i/d) and the llama3 rescaling in fp32; the
// same order of operations is kept here, because at position 100,000 one unit in the last place is
// a visible angle.
#include "config/rope.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace longhaul::config {
namespace {

constexpr double kLargest = 1e12;

/// True for the neutral value of a parameter that its type does not use.
bool is_unset_or_one(const base::Json& value) {
  return value.is_null() || (value.is_number() && value.get<double>() == 1.0);
}

void read_llama3(const JsonFields& scaling, const JsonFields& fields,
                 std::int64_t max_position_embeddings, RopeConfig& rope) {
  rope.type = RopeConfig::Type::kLlama3;
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (!scaling.has(key)) {
      scaling.fault(key, "missing, needed by rope type llama3", "a number");
    }
  }
  rope.factor = scaling.number("factor", 1.0, kLargest).value_or(1.0);
  rope.low_freq_factor = scaling.number("low_freq_factor", 1e-6, kLargest).value_or(1.0);
  rope.high_freq_factor = scaling.number("high_freq_factor", 1e-6, kLargest).value_or(4.0);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    scaling.fault("high_freq_factor", "not above low_freq_factor",
                  fmt::format("more than {}", rope.low_freq_factor));
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto outer = fields.integer("original_max_position_embeddings", 1, kMost);
  const auto inner = scaling.integer("original_max_position_embeddings", 1, kMost);
  rope.original_max_position_embeddings = outer.value_or(inner.value_or(max_position_embeddings));
}

/// Parameters outside the type's own would change the angles in ways that are not built.
void refuse_unused(const JsonFields& scaling, RopeConfig::Type type) {
  for (const auto& [key, value] : scaling.object().items()) {
    const bool common = key == "rope_type" || key == "type" || key == "rope_theta" ||
                        key == "partial_rotary_factor";
    const bool scaled = key == "factor" && type != RopeConfig::Type::kDefault;
    const bool llama3 = type == RopeConfig::Type::kLlama3 &&
                        (key == "low_freq_factor" || key == "high_freq_factor" ||
                         key == "original_max_position_embeddings");
    if (!common && !scaled && !llama3 && !is_unset_or_one(value)) {
      scaling.fault(key, "rotary parameter that this rope type does not use");
    }
  }
}

void read_scaling(const JsonFields& scaling, const JsonFields& fields,
                  std::int64_t max_position_embeddings, RopeConfig& rope) {
  const char* key = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.text(key).value_or("default");
  if (type == "llama3") {
    read_llama3(scaling, fields, max_position_embeddings, rope);
  } else if (type == "linear") {
    rope.type = RopeConfig::Type::kLinear;
    if (!scaling.has("factor")) {
      scaling.fault("factor", "missing, needed by rope type linear", "a number");
    }
    rope.factor = scaling.number("factor", 1.0, kLargest).value_or(1.0);
  } else if (type != "default") {
    scaling.fault(key, "rope type is not available yet", "default, linear or llama3");
    return;
  }
  refuse_unused(scaling, rope.type);
}

}  // namespace

RopeConfig read_rope(const JsonFields& fields, std::int64_t max_position_embeddings) {
  RopeConfig rope;
  rope.theta = fields.number("rope_theta", 1.0 + 1e-6, kLargest).value_or(rope.theta);
  const auto refuse_partial = [](const JsonFields& place) {
    const auto factor = place.number("partial_rotary_factor", 0.0, 1.0);
    if (factor && *factor != 1.0) {
      place.fault("partial_rotary_factor", "rotating a part of each head is not available", "1.0");
    }
  };
  refuse_partial(fields);
  const bool has_scaling = fields.has("rope_scaling") && !fields.at("rope_scaling").empty();
  const bool has_parameters =
      fields.has("rope_parameters") && !fields.at("rope_parameters").empty();
  if (!has_scaling && !has_parameters) {
    return rope;
  }
  if (has_scaling && has_parameters && fields.at("rope_scaling") != fields.at("rope_parameters")) {
    fields.fault("rope_parameters", "says something else than rope_scaling",
                 short_dump(fields.at("rope_scaling")), "Remove one of the two");
    return rope;
  }
  const std::string key = has_scaling ? "rope_scaling" : "rope_parameters";
  if (!fields.at(key).is_object()) {
    fields.fault(key, "impossible value", "an object");
    return rope;
  }
  const JsonFields scaling = fields.child(key);
  for (const auto& [name, value] : scaling.object().items()) {
    if (value.is_object()) {
      fields.fault(key, "rotary parameters per layer type are not available", "one flat object");
      return rope;
    }
  }
  rope.theta = scaling.number("rope_theta", 1.0 + 1e-6, kLargest).value_or(rope.theta);
  refuse_partial(scaling);
  read_scaling(scaling, fields, max_position_embeddings, rope);
  return rope;
}

std::vector<float> rope_inverse_frequencies(const ModelConfig& model) {
  const RopeConfig& rope = model.rope;
  const auto theta = static_cast<float>(rope.theta);
  const auto width = static_cast<float>(model.head_dim);
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < model.head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / width;
    frequencies.push_back(1.0F / std::pow(theta, exponent));
  }
  if (rope.type == RopeConfig::Type::kLinear) {
    for (float& frequency : frequencies) {
      frequency /= static_cast<float>(rope.factor);
    }
  }
  if (rope.type != RopeConfig::Type::kLlama3) {
    return frequencies;
  }
  const auto length = static_cast<double>(rope.original_max_position_embeddings);
  const auto longest = static_cast<float>(length / rope.low_freq_factor);
  const auto shortest = static_cast<float>(length / rope.high_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto span = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  for (float& frequency : frequencies) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wavelength > longest) {
      frequency /= factor;
    } else if (wavelength >= shortest) {
      const float smooth = (static_cast<float>(length) / wavelength - low) / span;
      frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
    }
  }
  return frequencies;
}

}  // namespace longhaul::config
