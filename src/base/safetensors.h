// safetensors files: u64 little-endian header length, JSON header (≤ 100 MB), tensors' bytes
// without holes or overlaps. Reading maps the file; every fault is a UserError naming file and
// tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"

namespace longhaul::base {

/// Where one tensor lies; `bytes` points into a mapping that the owner of this view keeps alive.
struct TensorView {
  Dtype dtype = Dtype::kFloat32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  const MappedFile* file = nullptr;

  [[nodiscard]] std::int64_t num_elements() const;
};

/// One file or a sharded set (`*.index.json`), opened read-only and fully validated before use.
class SafetensorsReader {
 public:
  /// `path`: a .safetensors file, an .index.json file, or a folder holding model.safetensors or its
  /// index.
  explicit SafetensorsReader(const std::filesystem::path& path);

  [[nodiscard]] const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The tensor called `name`; UserError naming the file(s) when absent.
  [[nodiscard]] const TensorView& at(const std::string& name) const;

 private:
  void read_one(const std::filesystem::path& file);

  std::filesystem::path path_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Takes the next bytes of a tensor that is being written.
using ByteSink = std::function<void(std::span<const std::byte> bytes)>;

/// One tensor to write; its values come from `bytes` or, when that is set, from `fill`.
struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<std::int64_t> shape;
  /// Contiguous row-major bytes, alive until write_safetensors returns.
  std::span<const std::byte> bytes;
  /// Called once, when it is the tensor's turn: hands all its bytes over in order, in parts.
  std::function<void(const ByteSink& sink)> fill{};
};

/// Streams the tensors to a temporary file beside `path`, syncs and renames it; SystemError on a full disk. Larger
/// element types come first, otherwise the order given, so every tensor is aligned to its element size.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata);

/// Converts `view` (F32, F16 or BF16) to float; `out` holds view.num_elements() values.
/// UserError naming `name` when the type is not one of the three.
void to_float(const TensorView& view, const std::string& name, std::span<float> out);

}  // namespace longhaul::base
