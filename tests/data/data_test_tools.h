// Small tools of the data tests: temporary folders, a toy encoder whose tokens are the bytes of the
// text, stores made from lists of lengths.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/dataset.h"
#include "data/store_writer.h"
#include "data/token_store.h"

namespace longhaul::data {

/// A folder that is removed at the end of the test.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "longhaul-data-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// One token per byte; answers are targets. The system text comes first.
inline text::TokenizedSample encode_bytes(const text::Conversation& conversation) {
  text::TokenizedSample sample;
  const auto add = [&sample](const std::string& text, bool target) {
    for (const char c : text) {
      const auto id = static_cast<std::int32_t>(static_cast<unsigned char>(c));
      sample.ids.push_back(id);
      sample.labels.push_back(target ? id : text::kNoLabel);
    }
  };
  add(conversation.system.value_or(""), false);
  for (const text::Message& message : conversation.messages) {
    add(message.content, message.role == text::Role::kAssistant && message.loss.value_or(true));
  }
  if (!sample.labels.empty()) {
    sample.labels[0] = text::kNoLabel;
  }
  return sample;
}

inline Encoding byte_encoding() { return {.identity = "bytes", .encode = encode_bytes}; }

/// A row whose sample has `length` tokens: one of the question, the rest of the answer.
inline std::string row_of_length(std::int64_t length, char letter = 'a') {
  return R"({"query": "q", "response": ")" +
         std::string(static_cast<std::size_t>(length) - 1, letter) + "\"}\n";
}

/// A store of samples with these lengths: ids are 1000·sample + position, every token but the first
/// is a target unless `masked` says otherwise.
inline TokenStore store_of_lengths(
    const std::filesystem::path& folder, const std::vector<std::int64_t>& lengths,
    const std::function<bool(std::int64_t, std::int64_t)>& is_target = [](auto, auto) {
      return true;
    }) {
  const auto path = folder / "lengths.store";
  {
    StoreWriter writer(path, folder / "lengths.tmp");
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      text::TokenizedSample sample;
      for (std::int64_t k = 0; k < lengths[i]; ++k) {
        const auto id = static_cast<std::int32_t>(1000 * static_cast<std::int64_t>(i) + k);
        const bool target = k > 0 && is_target(static_cast<std::int64_t>(i), k);
        sample.ids.push_back(id);
        sample.labels.push_back(target ? id : text::kNoLabel);
      }
      writer.add_row(0, {.offset = 0, .bytes = 1, .line = i + 1}, {{sample}});
    }
    writer.finish({.key = "{}", .files = {"made.jsonl"}, .report = {}});
  }
  std::string fault;
  const auto file = StoreFile::open(path, fault);
  EXPECT_EQ(fault, "");
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return {file, order};
}

/// The one line of the error that `action` throws; a failure when it throws nothing.
template <typename Error>
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace longhaul::data
