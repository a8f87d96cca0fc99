#include "model/loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "ops/scalar_type.h"

namespace longhaul::model {
namespace {

using base::Problem;

/// A tensor over the file's mapping; only read from.
at::Tensor view_of(const base::TensorView& file) {
  return at::from_blob(const_cast<std::byte*>(file.bytes.data()), file.shape,
                       ops::torch_type(file.dtype));
}

template <typename Word>
bool all_finite_words(std::span<const std::byte> bytes, Word exponent_mask) {
  const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(Word));
  std::int64_t bad = 0;
#pragma omp parallel for reduction(+ : bad) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + static_cast<std::size_t>(i) * sizeof(Word), sizeof(Word));
    bad += (word & exponent_mask) == exponent_mask ? 1 : 0;
  }
  return bad == 0;
}

bool all_finite(const base::TensorView& file) {
  switch (file.dtype) {
    case base::Dtype::kFloat16:
      return all_finite_words<std::uint16_t>(file.bytes, 0x7C00U);
    case base::Dtype::kBFloat16:
      return all_finite_words<std::uint16_t>(file.bytes, 0x7F80U);
    default:
      return all_finite_words<std::uint32_t>(file.bytes, 0x7F800000U);
  }
}

/// What is wrong with a tensor of a file for `spec` by its header, if anything.
std::optional<Problem> check_header(const base::TensorView& file, const std::string& name,
                                    const config::ParamSpec& spec) {
  const std::string where = file.file == nullptr ? name : file.file->path().string();
  if (file.shape != spec.shape) {
    return Problem{.where = where,
                   .what = "tensor " + name + " has another shape than config.json asks for",
                   .got = fmt::format("{}", file.shape),
                   .expected = fmt::format("{}", spec.shape)};
  }
  if (ops::torch_type(file.dtype) == at::ScalarType::Undefined) {
    return Problem{.where = where,
                   .what = "tensor " + name + " has an unsupported type",
                   .got = std::string(base::safetensors_name(file.dtype)),
                   .expected = "F32, F16 or BF16"};
  }
  return std::nullopt;
}

/// The same, its values too.
std::optional<Problem> check_tensor(const base::TensorView& file, const std::string& name,
                                    const config::ParamSpec& spec) {
  if (auto problem = check_header(file, name, spec)) {
    return problem;
  }
  if (!all_finite(file)) {
    return Problem{.where = file.file == nullptr ? name : file.file->path().string(),
                   .what = "tensor " + name + " holds NaN or infinite values",
                   .hint = "The file is damaged or the training that made it diverged"};
  }
  return std::nullopt;
}

void assign_and_forget(const base::TensorView& file, std::int64_t param, Parameters& parameters) {
  parameters.assign(param, view_of(file));
  if (file.file != nullptr) {
    // The mapping would count as resident memory beside the copy.
    const auto offset = static_cast<std::size_t>(file.bytes.data() - file.file->bytes().data());
    file.file->drop_pages(offset, file.bytes.size());
  }
}

bool is_ignorable(const std::string& name, const std::set<std::string>& tied) {
  return name.ends_with("rotary_emb.inv_freq") || tied.contains(name);
}

using Registry = BaseWeights::Registry;

std::set<std::string> tied_names(Registry registry) {
  std::set<std::string> tied;
  for (const config::ParamSpec& spec : registry) {
    if (spec.tied_to) {
      tied.insert(spec.name);
    }
  }
  return tied;
}

void throw_if_any(std::vector<Problem> problems) {
  if (!problems.empty()) {
    throw base::UserError(std::move(problems));
  }
}

bool is_adapter_matrix(const config::ParamSpec& spec) {
  return spec.kind == config::ParamKind::kLoraA || spec.kind == config::ParamKind::kLoraB;
}

}  // namespace

BaseWeights::BaseWeights(const std::filesystem::path& model_folder)
    : folder_(model_folder), reader_(model_folder) {}

std::string BaseWeights::source_name(Registry registry, const config::ParamSpec& spec) const {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  if (spec.kind != config::ParamKind::kHead) {
    return spec.name;
  }
  const bool is_saved =
      spec.in_adapter || std::any_of(registry.begin(), registry.end(), [](const auto& other) {
        return other.name == kEmbedding && other.in_adapter;
      });
  return is_saved && config::read_model_config(folder_).tie_word_embeddings ? kEmbedding
                                                                            : spec.name;
}

std::vector<Problem> BaseWeights::unused_tensors(Registry registry) const {
  std::set<std::string> known;
  for (const config::ParamSpec& spec : registry) {
    if (!is_adapter_matrix(spec)) {
      known.insert(spec.name);
    }
  }
  const std::set<std::string> tied = tied_names(registry);
  std::vector<Problem> problems;
  for (const auto& [name, file] : reader_.tensors()) {
    if (!known.contains(name) && !is_ignorable(name, tied)) {
      problems.push_back({.where = file.file->path().string(),
                          .what = "tensor " + name + " is not used by this model",
                          .hint = "config.json and the weights do not belong together"});
    }
  }
  return problems;
}

void BaseWeights::walk(Registry registry, const Visit& visit) const {
  std::vector<Problem> problems = unused_tensors(registry);
  for (std::size_t i = 0; i < registry.size(); ++i) {
    const config::ParamSpec& spec = registry[i];
    if (spec.tied_to || is_adapter_matrix(spec)) {
      continue;
    }
    const auto entry = reader_.tensors().find(source_name(registry, spec));
    if (entry == reader_.tensors().end()) {
      problems.push_back(
          {.where = folder_.string(), .what = "tensor " + spec.name + " is missing"});
    } else if (auto problem =
                   visit(static_cast<std::int64_t>(i), entry->second, problems.empty())) {
      problems.push_back(*std::move(problem));
    }
  }
  throw_if_any(std::move(problems));
}

void BaseWeights::check(Registry registry) const {
  walk(registry, [&](std::int64_t param, const base::TensorView& file, bool /*all_good*/) {
    const config::ParamSpec& spec = registry[static_cast<std::size_t>(param)];
    return check_header(file, spec.name, spec);
  });
}

void BaseWeights::load(Parameters& parameters) const {
  walk(parameters.registry(), [&](std::int64_t param, const base::TensorView& file, bool all_good) {
    const config::ParamSpec& spec = parameters.registry()[static_cast<std::size_t>(param)];
    auto problem = check_tensor(file, spec.name, spec);
    if (!problem && all_good) {
      assign_and_forget(file, param, parameters);
    }
    return problem;
  });
}

std::string BaseWeights::fingerprint() const {
  constexpr std::size_t kSampleBytes = 4096;
  std::string text;
  for (const auto& [name, file] : reader_.tensors()) {
    text += fmt::format("{} {} {}", name, base::safetensors_name(file.dtype), file.shape);
    const std::size_t size = file.bytes.size();
    const std::size_t count = std::min(size, kSampleBytes);
    for (const std::size_t begin : {std::size_t{0}, (size - count) / 2, size - count}) {
      text += ' ' + base::checksum(file.bytes.subspan(begin, count));
    }
    text += '\n';
  }
  return base::checksum_text(text);
}

void init_lora(std::uint64_t seed, Parameters& parameters) {
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    if (!is_adapter_matrix(spec)) {
      continue;
    }
    at::Tensor values = at::empty(spec.shape, at::kFloat);
    auto* data = values.data_ptr<float>();
    if (spec.kind == config::ParamKind::kLoraB) {
      values.zero_();
    } else {
      // Addressed by the module's name, so that other targets or layers never change this matrix.
      const std::string key = base::checksum_text(spec.name);
      const base::CounterRng rng(seed, base::RngPurpose::kLoraInit, std::stoull(key, nullptr, 16));
      const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.shape[1])));
      for (std::int64_t k = 0; k < values.numel(); ++k) {
        data[k] = (rng.uniform(static_cast<std::uint64_t>(k)) * 2.0F - 1.0F) * bound;
      }
    }
    parameters.assign(static_cast<std::int64_t>(i), values);
  }
}

std::string adapter_tensor_name(const config::ParamSpec& spec) {
  return "base_model.model." + spec.name;
}

void load_adapter(const std::filesystem::path& adapter_folder, Parameters& parameters) {
  const base::SafetensorsReader reader(adapter_folder / "adapter_model.safetensors");
  std::vector<Problem> problems;
  std::set<std::string> used;
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    if (!spec.in_adapter || spec.tied_to) {
      continue;
    }
    const std::string name = adapter_tensor_name(spec);
    used.insert(name);
    const auto entry = reader.tensors().find(name);
    if (entry == reader.tensors().end()) {
      problems.push_back({.where = adapter_folder.string(),
                          .what = "tensor " + name + " is missing from the adapter",
                          .hint = "Is this an adapter of another model?"});
    } else if (auto problem = check_tensor(entry->second, name, spec)) {
      problem->hint = "Is this an adapter of another model?";
      problems.push_back(*std::move(problem));
    } else if (problems.empty()) {
      assign_and_forget(entry->second, static_cast<std::int64_t>(i), parameters);
    }
  }
  for (const auto& [name, file] : reader.tensors()) {
    if (!used.contains(name)) {
      problems.push_back({.where = adapter_folder.string(),
                          .what = "tensor " + name + " of the adapter fits nothing in this model",
                          .hint = "Is this an adapter of another model?"});
    }
  }
  throw_if_any(std::move(problems));
}

}  // namespace longhaul::model
