#include "infer/merge_adapter.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/path_state.h"
#include "base/safetensors.h"
#include "infer/model_files.h"
#include "model/loader.h"

namespace longhaul::infer {
namespace {

namespace fs = std::filesystem;
using base::Dtype;
using base::Problem;

/// Elements of one tile: 64 MB in fp32.
constexpr std::int64_t kTileElements = 16 << 20;
constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
constexpr std::string_view kHead = "lm_head.weight";

at::ScalarType torch_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return at::kHalf;
    case Dtype::kBFloat16:
      return at::kBFloat16;
    default:
      LONGHAUL_ASSERT(dtype == Dtype::kFloat32, "weights are float32, float16 or bfloat16");
      return at::kFloat;
  }
}

bool is_weight_type(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16;
}

/// How one tensor of the result is made.
struct MergedTensor {
  std::string name;
  const base::TensorView* base =
      nullptr;          // the base's values; null when the adapter's replace them
  at::Tensor saved{};   // fp32, the adapter's own copy
  at::Tensor lora_a{};  // [r, K], undefined when nothing is added
  at::Tensor lora_b{};  // [N, r]
  std::vector<std::int64_t> shape;
  Dtype dtype = Dtype::kFloat32;
};

/// The base model's tensors, checked against config.json, and the adapter's in fp32.
class Merge {
 public:
  Merge(const config::ModelConfig& model, const MergeRequest& request)
      : request_(request),
        scale_(request.adapter.lora.scale()),
        registry_(config::build_registry(model, {.lora = request.adapter.lora})),
        adapter_(adapter_registry(registry_), at::kFloat),
        base_(request.model_folder) {
    model::load_adapter(request.adapter.folder, adapter_);
    const config::ParamSpec* const head = find_spec(std::string(kHead));
    report_.untied = model.tie_word_embeddings && head != nullptr && !head->tied_to;
    check_base(model.tie_word_embeddings);
  }

  /// Tensors of every weight file, by file name, in the base's order.
  [[nodiscard]] std::map<std::string, std::vector<MergedTensor>> plan();
  void write_file(const fs::path& path, const std::vector<MergedTensor>& tensors) const;
  [[nodiscard]] const MergeReport& report() const { return report_; }

 private:
  static std::vector<config::ParamSpec> adapter_registry(
      const std::vector<config::ParamSpec>& registry) {
    std::vector<config::ParamSpec> mine;
    for (config::ParamSpec spec : registry) {
      if (spec.in_adapter && !spec.tied_to) {
        spec.trainable = false;
        mine.push_back(std::move(spec));
      }
    }
    return mine;
  }

  [[nodiscard]] const config::ParamSpec* find_spec(const std::string& name) const {
    const auto found = std::find_if(registry_.begin(), registry_.end(),
                                    [&](const auto& spec) { return spec.name == name; });
    return found == registry_.end() ? nullptr : &*found;
  }

  void check_base(bool tied) const;
  [[nodiscard]] MergedTensor make_tensor(const std::string& name, const base::TensorView& view);
  void fill(const MergedTensor& tensor, const base::ByteSink& sink) const;
  [[nodiscard]] at::Tensor tile_of(const MergedTensor& tensor, std::int64_t row,
                                   std::int64_t rows) const;

  const MergeRequest& request_;
  double scale_;
  std::vector<config::ParamSpec> registry_;
  model::Parameters adapter_;
  base::SafetensorsReader base_;
  MergeReport report_;
};

/// Problems of one tensor of the base's files.
std::optional<Problem> check_view(const base::TensorView& view, const std::string& name,
                                  const config::ParamSpec& spec) {
  const std::string where = view.file->path().string();
  if (view.shape != spec.shape) {
    return Problem{.where = where,
                   .what = "tensor " + name + " has another shape than config.json asks for",
                   .got = fmt::format("{}", view.shape),
                   .expected = fmt::format("{}", spec.shape)};
  }
  if (!is_weight_type(view.dtype)) {
    return Problem{.where = where,
                   .what = "tensor " + name + " has an unsupported type",
                   .got = std::string(base::safetensors_name(view.dtype)),
                   .expected = "F32, F16 or BF16"};
  }
  return std::nullopt;
}

void Merge::check_base(bool tied) const {
  std::vector<Problem> problems;
  for (const auto& [name, view] : base_.tensors()) {
    const config::ParamSpec* const spec = find_spec(name);
    if (spec == nullptr && !name.ends_with("rotary_emb.inv_freq")) {
      problems.push_back({.where = view.file->path().string(),
                          .what = "tensor " + name + " is not used by this model",
                          .hint = "config.json and the weights do not belong together"});
    } else if (spec != nullptr) {
      if (auto problem = check_view(view, name, *spec)) {
        problems.push_back(*std::move(problem));
      }
    }
  }
  for (const config::ParamSpec& spec : registry_) {
    const bool needed = spec.kind != config::ParamKind::kLoraA &&
                        spec.kind != config::ParamKind::kLoraB && !(tied && spec.name == kHead);
    if (needed && base_.tensors().count(spec.name) == 0) {
      problems.push_back(
          {.where = request_.model_folder.string(), .what = "tensor " + spec.name + " is missing"});
    }
  }
  if (!problems.empty()) {
    throw base::UserError(std::move(problems));
  }
}

MergedTensor Merge::make_tensor(const std::string& name, const base::TensorView& view) {
  MergedTensor tensor{.name = name, .base = &view, .shape = view.shape, .dtype = view.dtype};
  if (request_.dtype && is_weight_type(view.dtype)) {
    tensor.dtype = *request_.dtype;
  }
  const config::ParamSpec* spec = find_spec(name);
  if (spec == nullptr) {
    return tensor;  // a buffer that nothing reads
  }
  if (spec->tied_to) {
    // A head that is stored although it is the embedding stays what the embedding becomes.
    spec = find_spec(*spec->tied_to);
  }
  if (spec->in_adapter) {
    tensor.saved = adapter_.compute(adapter_.find(spec->name));
    ++report_.replaced_tensors;
    return tensor;
  }
  const std::string module = name.substr(0, name.rfind('.') + 1);
  const std::int64_t lora_a = adapter_.find(module + "lora_A.weight");
  if (lora_a >= 0 && spec->kind == config::ParamKind::kLinearWeight) {
    tensor.lora_a = adapter_.compute(lora_a);
    tensor.lora_b = adapter_.compute(adapter_.find(module + "lora_B.weight"));
    ++report_.merged_matrices;
  }
  return tensor;
}

std::map<std::string, std::vector<MergedTensor>> Merge::plan() {
  std::map<std::string, std::vector<MergedTensor>> files;
  for (const auto& [name, view] : base_.tensors()) {
    files[view.file->path().filename().string()].push_back(make_tensor(name, view));
  }
  const base::TensorView& embedding = base_.at(std::string(kEmbedding));
  if (report_.untied && base_.tensors().count(std::string(kHead)) == 0) {
    files[embedding.file->path().filename().string()].push_back(
        make_tensor(std::string(kHead), embedding));
  }
  for (auto& [file, tensors] : files) {
    report_.weight_files.push_back(file);
    // The order in the file follows the base's, which is the order of its bytes.
    std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      return a.base->bytes.data() < b.base->bytes.data();
    });
  }
  return files;
}

at::Tensor Merge::tile_of(const MergedTensor& tensor, std::int64_t row, std::int64_t rows) const {
  if (tensor.saved.defined()) {
    return tensor.saved.narrow(0, row, rows);
  }
  const auto width = static_cast<std::size_t>(tensor.base->bytes.size()) /
                     static_cast<std::size_t>(std::max<std::int64_t>(tensor.shape[0], 1));
  std::vector<std::int64_t> shape = tensor.shape;
  shape[0] = rows;
  auto* const bytes =
      const_cast<std::byte*>(tensor.base->bytes.data() + static_cast<std::size_t>(row) * width);
  // Mapped weights may start at any byte; only a copy is sure to be aligned.
  at::Tensor stored = at::empty(shape, torch_type(tensor.base->dtype));
  std::copy_n(bytes, stored.nbytes(), static_cast<std::byte*>(stored.data_ptr()));
  at::Tensor tile = stored.to(at::kFloat);
  if (tensor.lora_a.defined()) {
    tile.add_(at::mm(tensor.lora_b.narrow(0, row, rows), tensor.lora_a).mul_(scale_));
  }
  return tile;
}

void Merge::fill(const MergedTensor& tensor, const base::ByteSink& sink) const {
  if (!is_weight_type(tensor.dtype)) {
    sink(tensor.base->bytes);
    return;
  }
  const std::int64_t rows = tensor.shape.empty() ? 0 : tensor.shape[0];
  std::int64_t row_elements = 1;
  for (std::size_t i = 1; i < tensor.shape.size(); ++i) {
    row_elements *= tensor.shape[i];
  }
  const std::int64_t step =
      std::max<std::int64_t>(1, kTileElements / std::max<std::int64_t>(1, row_elements));
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    const at::Tensor exact = tile_of(tensor, row, count);
    const at::Tensor tile = exact.to(torch_type(tensor.dtype)).contiguous();
    if (!at::isfinite(tile).all().item<bool>()) {
      const bool overflow = at::isfinite(exact).all().item<bool>();
      throw base::UserError(Problem{
          .where = request_.model_folder.string(),
          .what = fmt::format(
              "tensor {} {}", tensor.name,
              overflow ? "is too large for the result's type" : "holds NaN or infinite values"),
          .got = overflow ? std::string(base::dtype_name(tensor.dtype)) : "",
          .hint = overflow ? "Use --torch_dtype bfloat16 or float32" : "The file is damaged"});
    }
    sink({static_cast<const std::byte*>(tile.data_ptr()), tile.nbytes()});
  }
  if (tensor.base->file != nullptr) {
    const auto* const begin = tensor.base->file->bytes().data();
    tensor.base->file->drop_pages(static_cast<std::size_t>(tensor.base->bytes.data() - begin),
                                  tensor.base->bytes.size());
  }
}

void Merge::write_file(const fs::path& path, const std::vector<MergedTensor>& tensors) const {
  std::vector<base::TensorToWrite> entries;
  for (const MergedTensor& tensor : tensors) {
    entries.push_back(
        {.name = tensor.name,
         .dtype = tensor.dtype,
         .shape = tensor.shape,
         .bytes = {},
         .fill = [this, &tensor](const base::ByteSink& sink) { fill(tensor, sink); }});
  }
  base::write_safetensors(path, entries, {{"format", "pt"}});
}

/// model.safetensors.index.json of a set of several files.
void write_index(const fs::path& folder,
                 const std::map<std::string, std::vector<MergedTensor>>& files) {
  std::int64_t total = 0;
  std::map<std::string, std::string> file_of;
  for (const auto& [file, tensors] : files) {
    for (const MergedTensor& tensor : tensors) {
      std::int64_t elements = 1;
      for (const std::int64_t size : tensor.shape) {
        elements *= size;
      }
      total += elements * static_cast<std::int64_t>(base::dtype_bytes(tensor.dtype));
      file_of[tensor.name] = file;
    }
  }
  const base::OrderedJson index = {{"metadata", {{"total_size", total}}}, {"weight_map", file_of}};
  base::write_file_atomically(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

/// A new folder is built beside its place. An existing one may be a disk of its own, which files
/// cannot be renamed into from outside, so its new files are built inside it.
fs::path staging_name(const fs::path& output) {
  return base::is_folder(output, "--output_dir") ? output / "merge" : output;
}

}  // namespace

void check_merge_target(const MergeRequest& request) {
  const fs::path& output = request.output_folder;
  std::error_code ignored;
  const bool is_link = fs::is_symlink(fs::symlink_status(output, ignored));
  if (!base::path_exists(output, "--output_dir") && !is_link) {
    return;
  }
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    throw base::UserError(
        Problem{.where = "--output_dir", .what = what, .got = output.string(), .hint = hint});
  };
  if (!fs::is_directory(output, ignored)) {
    refuse("not a folder", "Name a new folder");
  }
  for (const fs::path& own : {request.model_folder, request.adapter.folder}) {
    if (fs::equivalent(output, own, ignored)) {
      refuse("the folder that is being merged", "Name another folder");
    }
  }
  if (!request.exist_ok) {
    refuse("exists already",
           "Name another folder, or replace the model in it with --exist_ok true");
  }
}

MergeReport merge_adapter(const config::ModelConfig& model, const MergeRequest& request) {
  check_merge_target(request);
  Merge merge(model, request);
  const std::map<std::string, std::vector<MergedTensor>> files = merge.plan();
  base::PendingFolder pending(staging_name(request.output_folder));
  for (const auto& [file, tensors] : files) {
    merge.write_file(pending.path() / file, tensors);
  }
  if (files.size() > 1 || files.begin()->first != "model.safetensors") {
    write_index(pending.path(), files);
  }
  copy_model_files(request.model_folder, pending.path());
  adjust_config(pending.path() / "config.json", {.dtype = request.dtype,
                                                 .max_position_embeddings = request.max_model_len,
                                                 .untie = merge.report().untied});
  for (const fs::path& file : request.more_files) {
    copy_whole_file(file, pending.path() / file.filename());
  }
  publish_model(pending, request.output_folder);
  return merge.report();
}

}  // namespace longhaul::infer
