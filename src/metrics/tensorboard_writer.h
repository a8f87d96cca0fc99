// TensorBoard event files: records framed as TFRecord (length, masked CRC-32C, bytes, masked
// CRC-32C) holding protobuf `Event` messages, encoded by hand because four message types with a
// handful of fields are all it takes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "metrics/record_json.h"

namespace longhaul::metrics {

/// Writes one `events.out.tfevents.*` file into a folder; each call is handed to the system before
/// it returns.
class TensorBoardWriter {
 public:
  /// Makes `folder` and a new event file in it. `resumed_after`: the step that this run goes on
  /// from, so that TensorBoard hides what an earlier file of the folder shows for later steps.
  explicit TensorBoardWriter(const std::filesystem::path& folder,
                             std::optional<std::int64_t> resumed_after = std::nullopt);
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter(TensorBoardWriter&&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(TensorBoardWriter&&) = delete;
  ~TensorBoardWriter();

  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void write(std::int64_t step, const Scalars& scalars);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  void append(std::string_view event);

  std::filesystem::path path_;
  int fd_ = -1;
};

/// CRC-32C (Castagnoli polynomial), and TFRecord's masked form of it.
std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

/// Frames of one TFRecord.
std::string tf_record(std::string_view bytes);

}  // namespace longhaul::metrics
