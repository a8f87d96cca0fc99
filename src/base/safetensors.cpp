// Reader and writer of safetensors files. Nothing of a file is believed before it is checked: the
// header's length, its JSON, every type, shape and byte range, and that the ranges tile the data
// exactly.
#include "base/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace longhaul::base {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kLengthBytes = 8;
constexpr const char* kMetadataKey = "__metadata__";
constexpr const char* kIndexSuffix = ".index.json";
constexpr const char* kAgainHint = "The file is damaged or not safetensors; get it again";

[[noreturn]] void refuse(const fs::path& file, std::string what, std::string got = {},
                         std::string expected = {}) {
  throw UserError({.where = file.string(),
                   .what = std::move(what),
                   .got = std::move(got),
                   .expected = std::move(expected),
                   .hint = kAgainHint});
}

/// Walks a JSON text and remembers the first key that one object holds twice (the parser keeps only
/// one).
class DuplicateKeyFinder : public nlohmann::json_sax<Json> {
 public:
  [[nodiscard]] const std::optional<std::string>& duplicate() const { return duplicate_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      duplicate_ = name;
      return false;
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
  std::optional<std::string> duplicate_;
};

Json parse_header(std::string_view text, const fs::path& file) {
  if (text.empty() || text.front() != '{') {
    refuse(file, "the safetensors header is not a JSON object");
  }
  JsonFault fault;
  std::optional<Json> header = try_parse_json(text, fault);
  if (!header) {
    refuse(file, fmt::format("the safetensors header is not valid JSON: {}", fault.reason));
  }
  DuplicateKeyFinder finder;
  Json::sax_parse(text.begin(), text.end(), &finder);
  if (finder.duplicate()) {
    refuse(file, fmt::format("the safetensors header names '{}' twice", *finder.duplicate()));
  }
  return *std::move(header);
}

std::uint64_t header_length(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < kLengthBytes) {
    refuse(file.path(), "too short for a safetensors file", fmt::format("{} bytes", bytes.size()),
           "at least 8 bytes");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    refuse(file.path(), "the safetensors header is too long", fmt::format("{} bytes", length),
           fmt::format("at most {}", kMaxHeaderBytes));
  }
  if (length > bytes.size() - kLengthBytes) {
    refuse(file.path(), "the file ends inside its safetensors header",
           fmt::format("{} bytes", bytes.size()), fmt::format("{}", length + kLengthBytes));
  }
  return length;
}

std::optional<std::int64_t> as_size(const Json& value) {
  if (!value.is_number_unsigned()) {
    return std::nullopt;
  }
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(number);
}

/// Short text of a JSON value for a message; foreign values can be of any length.
std::string shown(const Json& value) {
  constexpr std::size_t kMaxShown = 80;
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kMaxShown) {
    text.resize(kMaxShown);
    text += "...";
  }
  return text;
}

struct Extent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string name;
};

/// Checks one tensor's header entry by itself; `data` is the part of the file after the header.
TensorView read_entry(const Json& entry, const std::string& name, const MappedFile& file,
                      std::span<const std::byte> data, Extent& extent) {
  const auto fail = [&](std::string_view what, std::string got = {}, std::string expected = {}) {
    refuse(file.path(), fmt::format("tensor '{}': {}", name, what), std::move(got),
           std::move(expected));
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    fail("its header entry is incomplete", shown(entry), "dtype, shape and data_offsets");
  }
  const Json& dtype_json = entry.at("dtype");
  const std::optional<Dtype> dtype =
      dtype_json.is_string() ? dtype_from_safetensors(dtype_json.get_ref<const std::string&>())
                             : std::nullopt;
  if (!dtype) {
    fail("unknown element type", shown(dtype_json), "F32, F16, BF16 or another plain type");
  }

  TensorView view{.dtype = *dtype, .shape = {}, .bytes = {}, .file = &file};
  const Json& shape = entry.at("shape");
  if (!shape.is_array()) {
    fail("its shape is not a list", shown(shape));
  }
  auto expected_bytes = static_cast<std::int64_t>(dtype_bytes(*dtype));
  for (const Json& size_json : shape) {
    const std::optional<std::int64_t> size = as_size(size_json);
    if (!size || __builtin_mul_overflow(expected_bytes, *size, &expected_bytes)) {
      fail("impossible shape", shown(shape), "sizes from 0 whose product fits 63 bits");
    }
    view.shape.push_back(*size);
  }

  const Json& offsets = entry.at("data_offsets");
  const bool is_pair = offsets.is_array() && offsets.size() == 2;
  const std::optional<std::int64_t> begin = is_pair ? as_size(offsets[0]) : std::nullopt;
  const std::optional<std::int64_t> end = is_pair ? as_size(offsets[1]) : std::nullopt;
  if (!begin || !end || *begin > *end) {
    fail("impossible data_offsets", shown(offsets), "[begin, end] with begin <= end");
  }
  if (std::cmp_greater(*end, data.size())) {
    fail("its bytes lie beyond the end of the file (truncated?)", shown(offsets),
         fmt::format("offsets up to {}", data.size()));
  }
  if (*end - *begin != expected_bytes) {
    fail("its byte count does not match its type and shape", fmt::format("{}", *end - *begin),
         fmt::format("{}", expected_bytes));
  }
  view.bytes =
      data.subspan(static_cast<std::size_t>(*begin), static_cast<std::size_t>(*end - *begin));
  extent = {.begin = *begin, .end = *end, .name = name};
  return view;
}

/// The ranges must cover the data from 0 to its end, each byte once.
void check_tiling(std::vector<Extent> extents, std::size_t data_bytes, const fs::path& file) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::int64_t cursor = 0;
  std::string previous;
  for (const Extent& extent : extents) {
    if (extent.begin < cursor) {
      refuse(file, fmt::format("tensors '{}' and '{}' overlap", previous, extent.name));
    }
    if (extent.begin > cursor) {
      refuse(file, fmt::format("bytes that belong to no tensor before '{}'", extent.name),
             fmt::format("begin {}", extent.begin), fmt::format("{}", cursor));
    }
    cursor = extent.end;
    previous = extent.name;
  }
  if (std::cmp_not_equal(cursor, data_bytes)) {
    refuse(file, "bytes after the last tensor",
           fmt::format("{}", data_bytes - static_cast<std::size_t>(cursor)), "0");
  }
}

/// Which of the layouts in a model folder is there; a single file wins over an index, as in
/// transformers.
fs::path resolve_folder(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    std::error_code ignored;
    if (fs::exists(folder / name, ignored)) {
      return folder / name;
    }
  }
  throw UserError({.where = folder.string(),
                   .what = "no model.safetensors and no model.safetensors.index.json",
                   .hint = "The weights must be in safetensors format"});
}

struct ShardIndex {
  std::map<std::string, std::string> file_of_tensor;
  std::set<std::string> files;
};

ShardIndex read_index(const fs::path& path) {
  const Json json = parse_json(read_file(path), path.string());
  const bool has_map =
      json.is_object() && json.contains("weight_map") && json.at("weight_map").is_object();
  if (!has_map || json.at("weight_map").empty()) {
    refuse(path, "not a safetensors index: no weight_map with tensor names and files");
  }
  ShardIndex index;
  for (const auto& [name, file] : json.at("weight_map").items()) {
    if (!file.is_string()) {
      refuse(path, fmt::format("tensor '{}': its file is not a text", name), shown(file));
    }
    const auto& file_name = file.get_ref<const std::string&>();
    if (file_name.empty() || fs::path(file_name).filename() != file_name || file_name == ".." ||
        file_name == ".") {
      refuse(path, fmt::format("tensor '{}': its file must lie beside the index", name),
             shown(file));
    }
    index.file_of_tensor.emplace(name, file_name);
    index.files.insert(file_name);
  }
  return index;
}

void convert_16bit(std::span<const std::byte> bytes, float (*convert)(std::uint16_t),
                   std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    out[i] = convert(bits);
  }
}

/// A file that exists under its final name only when it is whole.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& final_path)
      : final_(final_path),
        temporary_(final_path.parent_path() / (".tmp-" + final_path.filename().string())),
        fd_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (fd_ < 0) {
      fail("cannot create the file");
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
    if (!renamed_) {
      ::unlink(temporary_.c_str());
    }
  }

  void write(std::string_view bytes) const { write_fully(fd_, bytes, final_); }

  void publish() {
    if (::fsync(fd_) != 0) {
      fail("cannot sync the file");
    }
    if (::close(std::exchange(fd_, -1)) != 0) {
      fail("cannot close the file");
    }
    if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
      fail("cannot rename the finished file");
    }
    renamed_ = true;
    sync_path(final_.has_parent_path() ? final_.parent_path() : fs::path("."));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw SystemError({.where = final_.string(),
                       .what = what + ": " + std::generic_category().message(errno),
                       .hint = "Check free space and permissions"});
  }

  fs::path final_;
  fs::path temporary_;
  int fd_ = -1;
  bool renamed_ = false;
};

/// Largest elements first, otherwise as given: each tensor then starts at a multiple of its element
/// size.
std::vector<const TensorToWrite*> storage_order(std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite*> order;
  order.reserve(tensors.size());
  for (const TensorToWrite& tensor : tensors) {
    order.push_back(&tensor);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
  });
  return order;
}

std::size_t bytes_of(const TensorToWrite& tensor) {
  const TensorView view{.dtype = tensor.dtype, .shape = tensor.shape, .bytes = {}};
  return static_cast<std::size_t>(view.num_elements()) * dtype_bytes(tensor.dtype);
}

std::string make_header(const std::vector<const TensorToWrite*>& order,
                        const std::map<std::string, std::string>& metadata) {
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) {
    header[kMetadataKey] = metadata;
  }
  std::set<std::string> names = {kMetadataKey};
  std::size_t offset = 0;
  for (const TensorToWrite* tensor : order) {
    LONGHAUL_ASSERT(names.insert(tensor->name).second, "tensor names are unique");
    const std::size_t size = bytes_of(*tensor);
    LONGHAUL_ASSERT(tensor->fill || tensor->bytes.size() == size,
                    "a tensor's bytes match its type and shape");
    // A flat ordered_json object searches linearly per key; push_back keeps thousands of tensors
    // cheap.
    header.get_ref<OrderedJson::object_t&>().emplace_back(
        tensor->name, OrderedJson{{"dtype", safetensors_name(tensor->dtype)},
                                  {"shape", tensor->shape},
                                  {"data_offsets", {offset, offset + size}}});
    offset += size;
  }
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  return text;
}

}  // namespace

std::int64_t TensorView::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    count *= size;
  }
  return count;
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : path_(path) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) {
    path_ = resolve_folder(path_);
  }
  if (!path_.string().ends_with(kIndexSuffix)) {
    read_one(path_);
    return;
  }
  const ShardIndex index = read_index(path_);
  for (const std::string& file : index.files) {
    read_one(path_.parent_path() / file);
  }
  for (const auto& [name, file] : index.file_of_tensor) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second.file->path().filename() != file) {
      refuse(path_, fmt::format("tensor '{}' is not in the file that the index names", name), {},
             file);
    }
  }
}

const TensorView& SafetensorsReader::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw UserError({.where = path_.string(),
                     .what = fmt::format("tensor '{}' is missing", name),
                     .hint = "The weights do not belong to this model, or are incomplete"});
  }
  return found->second;
}

void SafetensorsReader::read_one(const std::filesystem::path& file) {
  files_.push_back(std::make_unique<MappedFile>(file));
  const MappedFile& mapped = *files_.back();
  const std::uint64_t length = header_length(mapped);
  const Json header = parse_header(mapped.text().substr(kLengthBytes, length), file);
  const std::span<const std::byte> data = mapped.bytes().subspan(kLengthBytes + length);

  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadataKey) {
      if (!entry.is_object()) {
        refuse(file, "the safetensors metadata is not an object", shown(entry));
      }
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) {
          refuse(file, fmt::format("the safetensors metadata '{}' is not a text", key),
                 shown(value));
        }
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    Extent extent;
    TensorView view = read_entry(entry, name, mapped, data, extent);
    extents.push_back(std::move(extent));
    const auto [at, inserted] = tensors_.emplace(name, std::move(view));
    if (!inserted) {
      refuse(file, fmt::format("tensor '{}' is also in {}", name,
                               at->second.file->path().filename().string()));
    }
  }
  check_tiling(std::move(extents), data.size(), file);
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::vector<const TensorToWrite*> order = storage_order(tensors);
  const std::string header = make_header(order, metadata);
  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<char>((header.size() >> (8 * i)) & 0xFFU);
  }
  TemporaryFile file(path);
  file.write(length);
  file.write(header);
  for (const TensorToWrite* tensor : order) {
    std::size_t missing = bytes_of(*tensor);
    const ByteSink sink = [&](std::span<const std::byte> bytes) {
      LONGHAUL_ASSERT(bytes.size() <= missing, "a tensor gets no more bytes than it has");
      file.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      missing -= bytes.size();
    };
    tensor->fill ? tensor->fill(sink) : sink(tensor->bytes);
    LONGHAUL_ASSERT(missing == 0, "a tensor gets all its bytes");
  }
  file.publish();
}

void to_float(const TensorView& view, const std::string& name, std::span<float> out) {
  LONGHAUL_ASSERT(std::cmp_equal(out.size(), view.num_elements()),
                  "the destination has one place per element");
  switch (view.dtype) {
    case Dtype::kFloat32:
      if (!out.empty()) {
        std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
      }
      return;
    case Dtype::kFloat16:
      convert_16bit(view.bytes, f16_to_float, out);
      return;
    case Dtype::kBFloat16:
      convert_16bit(view.bytes, bf16_to_float, out);
      return;
    default:
      throw UserError({.where = view.file != nullptr ? view.file->path().string() : std::string(),
                       .what = fmt::format("tensor '{}' cannot be used as a weight", name),
                       .got = std::string(safetensors_name(view.dtype)),
                       .expected = "F32, F16 or BF16"});
  }
}

}  // namespace longhaul::base
