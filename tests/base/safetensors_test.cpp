// Every rule that a safetensors file must keep, broken one at a time. Reading and writing are
// compared with the reference package in safetensors_oracle.py.
#include "base/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/scratch.h"

namespace longhaul::base {
namespace {

namespace fs = std::filesystem;
using test::get_file;
using test::message_of;
using test::put_file;
using test::ScratchFolder;

std::string with_length(std::string_view header, std::string_view data, std::uint64_t length) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i) {
    file += static_cast<char>((length >> (8 * i)) & 0xFFU);
  }
  return file.append(header).append(data);
}

std::string safetensors(std::string_view header, std::string_view data) {
  return with_length(header, data, header.size());
}

/// The message for a file of these bytes; fails the test when the reader accepts it.
std::string refusal(const std::string& content) {
  const ScratchFolder scratch;
  const fs::path path = scratch / "model.safetensors";
  put_file(path, content);
  std::string message = message_of<UserError>([&] { SafetensorsReader reader(path); });
  EXPECT_EQ(message.rfind(path.string() + ": ", 0), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

std::string refusal(std::string_view header, std::string_view data) {
  return refusal(safetensors(header, data));
}

void expect_mentions(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
  }
}

TEST(SafetensorsReader, ReadsTensorsMetadataAndPaddedHeaders) {
  const ScratchFolder scratch;
  put_file(scratch / "f.safetensors",
           safetensors(R"({"__metadata__":{"format":"pt"},)"
                       R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[4,10]},)"
                       R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                       R"("empty":{"dtype":"I64","shape":[2,0],"data_offsets":[10,10]}}    )",
                       "\1\2\3\4abcdef"));
  const SafetensorsReader reader(scratch / "f.safetensors");
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  ASSERT_EQ(reader.tensors().size(), 3U);
  EXPECT_EQ(reader.at("a").num_elements(), 1);
  EXPECT_EQ(reader.at("b").dtype, Dtype::kBFloat16);
  EXPECT_EQ(std::memcmp(reader.at("b").bytes.data(), "abcdef", 6), 0);
  EXPECT_EQ(reader.at("empty").shape, (std::vector<std::int64_t>{2, 0}));
  EXPECT_EQ(reader.at("empty").num_elements(), 0);
}

TEST(SafetensorsReader, AcceptsAFileWithoutTensors) {
  const ScratchFolder scratch;
  put_file(scratch / "f.safetensors", safetensors("{}", ""));
  EXPECT_TRUE(SafetensorsReader(scratch / "f.safetensors").tensors().empty());
}

TEST(SafetensorsReader, NamesFileAndTensorWhenOneIsMissing) {
  const ScratchFolder scratch;
  put_file(scratch / "f.safetensors", safetensors("{}", ""));
  const SafetensorsReader reader(scratch / "f.safetensors");
  expect_mentions(message_of<UserError>([&] { (void)reader.at("model.x"); }),
                  {"f.safetensors: ", "'model.x'"});
}

TEST(SafetensorsReader, RefusesHeadersThatDoNotFitTheFile) {
  expect_mentions(refusal(""), {"0 bytes"});
  expect_mentions(refusal("1234567"), {"7 bytes"});
  expect_mentions(refusal(with_length("{}", "", 3)), {"inside its safetensors header"});
  expect_mentions(refusal(with_length("{}", "", 100'000'001)), {"too long", "100000001"});
  expect_mentions(refusal(with_length("{}", "", ~0ULL)), {"too long"});
  expect_mentions(refusal(with_length("{}", "", 0)), {"not a JSON object"});
}

TEST(SafetensorsReader, RefusesHeadersThatAreNoJsonObject) {
  expect_mentions(refusal("[]", ""), {"not a JSON object"});
  expect_mentions(refusal(" {}", ""), {"not a JSON object"});
  expect_mentions(refusal("{\"a\"", ""), {"not valid JSON"});
  expect_mentions(refusal("{} {}", ""), {"not valid JSON"});
  expect_mentions(refusal("{\"\xff\":1}", ""), {"not valid JSON"});
  std::string deep = "{\"a\":" + std::string(100'000, '[');
  expect_mentions(refusal(deep, ""), {"not valid JSON", "512"});
}

TEST(SafetensorsReader, RefusesNamesThatOccurTwice) {
  expect_mentions(refusal(R"({"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},)"
                          R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
                          "x"),
                  {"'a' twice"});
  expect_mentions(
      refusal(R"({"a":{"dtype":"I8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
      {"'dtype' twice"});
}

TEST(SafetensorsReader, RefusesIncompleteEntriesNamingTheTensor) {
  for (const char* entry :
       {R"({"shape":[1],"data_offsets":[0,1]})", R"({"dtype":"I8","data_offsets":[0,1]})",
        R"({"dtype":"I8","shape":[1]})", "[]", "1", "null", "\"text\""}) {
    expect_mentions(refusal(fmt::format("{{\"layer.7\":{}}}", entry), "x"), {"tensor 'layer.7'"});
  }
}

TEST(SafetensorsReader, RefusesUnknownElementTypes) {
  for (const char* dtype : {"\"F8_E4M3\"", "\"f32\"", "\"\"", "7", "null"}) {
    expect_mentions(
        refusal(fmt::format(R"({{"t":{{"dtype":{},"shape":[1],"data_offsets":[0,1]}}}})", dtype),
                "x"),
        {"tensor 't'", "element type", dtype});
  }
}

TEST(SafetensorsReader, RefusesImpossibleShapes) {
  for (const char* shape :
       {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[[1]]", "[9223372036854775808]",
        "[4294967296,4294967296]", "[9223372036854775807,2,0]", "[18446744073709551616]"}) {
    expect_mentions(
        refusal(fmt::format(R"({{"t":{{"dtype":"I8","shape":{},"data_offsets":[0,1]}}}})", shape),
                "x"),
        {"tensor 't'", "impossible shape"});
  }
  // Its product wraps around to 0, which would fit the offsets.
  expect_mentions(
      refusal(R"({"t":{"dtype":"I8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""),
      {"tensor 't'", "impossible shape"});
  for (const char* shape : {"1", "{}", "null"}) {
    expect_mentions(
        refusal(fmt::format(R"({{"t":{{"dtype":"I8","shape":{},"data_offsets":[0,1]}}}})", shape),
                "x"),
        {"tensor 't'", "not a list"});
  }
}

TEST(SafetensorsReader, RefusesImpossibleOffsets) {
  for (const char* offsets : {"[1,0]", "[0]", "[0,1,1]", "[-1,0]", "[0,1.0]", "[\"0\",1]", "{}",
                              "null", "[0,18446744073709551615]"}) {
    expect_mentions(
        refusal(fmt::format(R"({{"t":{{"dtype":"I8","shape":[1],"data_offsets":{}}}}})", offsets),
                "x"),
        {"tensor 't'", "data_offsets"});
  }
  expect_mentions(refusal(R"({"t":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "x"),
                  {"tensor 't'", "beyond the end of the file"});
  expect_mentions(refusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}})", "xyz"),
                  {"tensor 't'", "got 3, expected 4"});
}

TEST(SafetensorsReader, RefusesOverlapsHolesAndLeftOverBytes) {
  expect_mentions(refusal(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
                          R"("b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
                          "xyz"),
                  {"'a' and 'b' overlap"});
  expect_mentions(refusal(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
                          R"("b":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})",
                          "xy"),
                  {"overlap"});
  expect_mentions(refusal(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                          R"("b":{"dtype":"I8","shape":[1],"data_offsets":[2,3]}})",
                          "xyz"),
                  {"no tensor before 'b'"});
  expect_mentions(refusal(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})", "xy"),
                  {"no tensor before 'a'"});
  expect_mentions(refusal(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "xy"),
                  {"bytes after the last tensor"});
  expect_mentions(refusal("{}", "x"), {"bytes after the last tensor"});
}

TEST(SafetensorsReader, RefusesMetadataThatIsNoTextMap) {
  expect_mentions(refusal(R"({"__metadata__":[]})", ""), {"metadata"});
  expect_mentions(refusal(R"({"__metadata__":{"k":1}})", ""), {"metadata", "'k'"});
}

TEST(SafetensorsReader, RefusesFilesCutAtAnyPlace) {
  const std::string whole =
      safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x'));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    refusal(whole.substr(0, size));
  }
}

TEST(SafetensorsReader, SaysWhatAFolderLacks) {
  const ScratchFolder scratch;
  expect_mentions(message_of<UserError>([&] { SafetensorsReader reader(scratch.path()); }),
                  {scratch.path().string(), "model.safetensors", "index.json"});
}

/// Two shards beside an index with this weight map.
class ShardedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    put_file(folder_ / "one.safetensors",
             safetensors(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "x"));
    put_file(folder_ / "two.safetensors",
             safetensors(R"({"b":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "y"));
  }
  std::string refusal_of_index(std::string_view text) {
    put_file(index(), text);
    return message_of<UserError>([&] { SafetensorsReader reader(folder_.path()); });
  }
  [[nodiscard]] fs::path index() const { return folder_ / "model.safetensors.index.json"; }

  ScratchFolder folder_;
};

TEST_F(ShardedModel, OpensByFolderOrIndex) {
  put_file(index(), R"({"metadata":{"total_size":2},
                        "weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  for (const fs::path& path : {folder_.path(), index()}) {
    const SafetensorsReader reader(path);
    EXPECT_EQ(reader.tensors().size(), 2U);
    EXPECT_EQ(static_cast<char>(reader.at("b").bytes[0]), 'y');
    EXPECT_EQ(reader.at("b").file->path().filename(), "two.safetensors");
  }
}

TEST_F(ShardedModel, RefusesWrongIndexes) {
  expect_mentions(refusal_of_index("{"), {"index.json:1: "});
  expect_mentions(refusal_of_index("[]"), {"index.json: ", "weight_map"});
  expect_mentions(refusal_of_index(R"({"weight_map":{}})"), {"weight_map"});
  expect_mentions(refusal_of_index(R"({"weight_map":{"a":1}})"), {"tensor 'a'"});
  expect_mentions(refusal_of_index(R"({"weight_map":{"a":"../one.safetensors"}})"),
                  {"tensor 'a'", "beside the index"});
  expect_mentions(refusal_of_index(R"({"weight_map":{"a":"gone.safetensors"}})"),
                  {"gone.safetensors"});
  expect_mentions(
      refusal_of_index(R"({"weight_map":{"a":"one.safetensors","c":"one.safetensors"}})"),
      {"tensor 'c'", "one.safetensors"});
  expect_mentions(
      refusal_of_index(R"({"weight_map":{"a":"two.safetensors","b":"one.safetensors"}})"),
      {"tensor 'a'", "two.safetensors"});
}

TEST_F(ShardedModel, RefusesATensorThatLiesInTwoShards) {
  put_file(folder_ / "two.safetensors", get_file(folder_ / "one.safetensors"));
  expect_mentions(
      refusal_of_index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"),
      {"tensor 'a'", "one.safetensors", "two.safetensors"});
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(WriteSafetensors, WritesWhatItReadsBack) {
  const ScratchFolder scratch;
  const std::vector<std::uint16_t> halves = {1, 2, 3};
  const std::vector<float> floats = {1.5F, -2.0F, 0.25F, 8.0F};
  const std::vector<std::int64_t> scalar = {-7};
  const std::vector<TensorToWrite> tensors = {
      {.name = "b.half", .dtype = Dtype::kBFloat16, .shape = {3}, .bytes = bytes_of(halves)},
      {.name = "a.float", .dtype = Dtype::kFloat32, .shape = {2, 2}, .bytes = bytes_of(floats)},
      {.name = "s", .dtype = Dtype::kInt64, .shape = {}, .bytes = bytes_of(scalar)},
      {.name = "none", .dtype = Dtype::kFloat32, .shape = {0, 5}, .bytes = {}}};
  const fs::path path = scratch / "out.safetensors";
  write_safetensors(path, tensors, {{"format", "pt"}, {"é", "\"quoted\""}});

  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"é", "\"quoted\""}}));
  ASSERT_EQ(reader.tensors().size(), tensors.size());
  for (const TensorToWrite& tensor : tensors) {
    const TensorView& view = reader.at(tensor.name);
    EXPECT_EQ(view.dtype, tensor.dtype);
    EXPECT_EQ(view.shape, tensor.shape);
    EXPECT_TRUE(
        std::equal(view.bytes.begin(), view.bytes.end(), tensor.bytes.begin(), tensor.bytes.end()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.bytes.data()) % dtype_bytes(view.dtype), 0U)
        << tensor.name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1);
}

TEST(WriteSafetensors, KeepsTheGivenOrderForOneType) {
  const ScratchFolder scratch;
  const std::vector<float> values = {1.0F};
  std::vector<TensorToWrite> tensors;
  for (const char* name : {"z", "a", "m"}) {
    tensors.push_back(
        {.name = name, .dtype = Dtype::kFloat32, .shape = {1}, .bytes = bytes_of(values)});
  }
  write_safetensors(scratch / "f", tensors, {});
  const std::string text = get_file(scratch / "f");
  EXPECT_LT(text.find("\"z\""), text.find("\"a\""));
  EXPECT_LT(text.find("\"a\""), text.find("\"m\""));
}

TEST(WriteSafetensors, OnAFullDiskLeavesTheOldFileAndNothingElse) {
  const ScratchFolder scratch;
  const fs::path path = scratch / "w.safetensors";
  put_file(path, "old");
  const std::vector<float> values(10'000, 1.0F);
  const std::vector<TensorToWrite> tensors = {
      {.name = "w", .dtype = Dtype::kFloat32, .shape = {100, 100}, .bytes = bytes_of(values)}};
  {
    const test::FileSizeLimit limit(20'000);
    expect_mentions(message_of<SystemError>([&] { write_safetensors(path, tensors, {}); }),
                    {path.string()});
  }
  EXPECT_EQ(get_file(path), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1);
  EXPECT_THROW(write_safetensors(scratch / "no/f", tensors, {}), SystemError);
}

TEST(WriteSafetensors, RefusesWrongCallers) {
  const ScratchFolder scratch;
  const std::vector<float> values = {1.0F, 2.0F};
  const TensorToWrite right{
      .name = "w", .dtype = Dtype::kFloat32, .shape = {2}, .bytes = bytes_of(values)};
  TensorToWrite wrong = right;
  wrong.shape = {3};
  EXPECT_THROW(write_safetensors(scratch / "f", std::vector{wrong}, {}), InternalError);
  EXPECT_THROW(write_safetensors(scratch / "f", std::vector{right, right}, {}), InternalError);
  EXPECT_FALSE(fs::exists(scratch / "f"));
}

TEST(WriteSafetensors, TakesATensorInPartsAndExactlyOnce) {
  const ScratchFolder scratch;
  const std::vector<float> values = {1.0F, 2.0F, 3.0F};
  int calls = 0;
  TensorToWrite parts{.name = "w", .dtype = Dtype::kFloat32, .shape = {3}, .bytes = {}};
  parts.fill = [&](const ByteSink& sink) {
    ++calls;
    sink(bytes_of(values).first(5));
    sink({});
    sink(bytes_of(values).subspan(5));
  };
  write_safetensors(scratch / "f", std::vector{parts}, {});
  EXPECT_EQ(calls, 1);
  std::vector<float> back(3);
  to_float(SafetensorsReader(scratch / "f").at("w"), "w", back);
  EXPECT_EQ(back, values);
}

TEST(WriteSafetensors, RefusesPartsThatAreTooShortOrTooLong) {
  const ScratchFolder scratch;
  const std::vector<float> values = {1.0F, 2.0F, 3.0F, 4.0F};
  for (const std::size_t size : {11U, 13U}) {
    TensorToWrite parts{.name = "w", .dtype = Dtype::kFloat32, .shape = {3}, .bytes = {}};
    parts.fill = [&](const ByteSink& sink) { sink(bytes_of(values).first(size)); };
    EXPECT_THROW(write_safetensors(scratch / "f", std::vector{parts}, {}), InternalError);
    EXPECT_TRUE(fs::is_empty(scratch.path()));
  }
}

TEST(ToFloat, ConvertsTheThreeWeightTypesFromAnyAlignment) {
  const ScratchFolder scratch;
  std::string data = "p";  // one byte first, so that everything after it is unaligned
  const std::vector<float> floats = {1.5F, -0.0F, 3e38F};
  const std::vector<std::uint16_t> halves = {0x3C00, 0xC000, 0x0001};
  const std::vector<std::uint16_t> brains = {0x3F80, 0xC000, 0x7F80};
  data.append(reinterpret_cast<const char*>(floats.data()), 12);
  data.append(reinterpret_cast<const char*>(halves.data()), 6);
  data.append(reinterpret_cast<const char*>(brains.data()), 6);
  put_file(scratch / "f", safetensors(R"({"p":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                      R"("f":{"dtype":"F32","shape":[3],"data_offsets":[1,13]},)"
                                      R"("h":{"dtype":"F16","shape":[3],"data_offsets":[13,19]},)"
                                      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[19,25]}})",
                                      data));
  const SafetensorsReader reader(scratch / "f");
  const auto read = [&reader](const std::string& name) {
    std::vector<float> out(3);
    to_float(reader.at(name), name, out);
    return out;
  };
  EXPECT_EQ(read("f"), floats);
  EXPECT_EQ(read("h"), (std::vector<float>{1.0F, -2.0F, 0x1p-24F}));
  EXPECT_EQ(read("b"), (std::vector<float>{1.0F, -2.0F, std::numeric_limits<float>::infinity()}));
  std::vector<float> one(1);
  expect_mentions(message_of<UserError>([&] { to_float(reader.at("p"), "p", one); }),
                  {(scratch / "f").string(), "tensor 'p'", "U8"});
  EXPECT_THROW(to_float(reader.at("f"), "f", one), InternalError);
}

}  // namespace
}  // namespace longhaul::base
