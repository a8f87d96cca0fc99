#include "text/tokenizer.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include "text/expect_refused.h"
#include "text/tiny_tokenizer.h"

namespace longhaul::text {
namespace {

using base::Json;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

TEST(Tokenizer, SpecialTokenTextBecomesItsToken) {
  const Tokenizer tokenizer = tiny_tokenizer();
  EXPECT_EQ(tokenizer.encode("<|im_start|>hello hello<|im_end|>"),
            (Ids{kImStart, kHello, kSpaceHello, kImEnd}));
  EXPECT_EQ(tokenizer.encode("<|im_end"), byte_ids("<|im_end"));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

TEST(Tokenizer, NothingIsAdded) {
  Json spec = tiny_tokenizer_json();
  spec["post_processor"] = {{"type", "TemplateProcessing"}, {"single", Json::array()}};
  EXPECT_EQ(Tokenizer::parse(spec.dump(), "t").encode("hello"), (Ids{kHello}));
}

TEST(Tokenizer, DecodesAndSkipsSpecialTokens) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const Ids ids = {kImStart, kHello, kTag, 0xC3, 0xA9, kImEnd, 9999, -1};
  EXPECT_EQ(tokenizer.decode(ids, false), "<|im_start|>hello<tag>é<|im_end|>");
  EXPECT_EQ(tokenizer.decode(ids, true), "hello<tag>é");
  EXPECT_EQ(tokenizer.decode(Ids{0xC3}, true), "\uFFFD");
}

TEST(Tokenizer, KnowsItsIds) {
  const Tokenizer tokenizer = tiny_tokenizer();
  EXPECT_EQ(tokenizer.num_ids(), kTinyIds);
  EXPECT_EQ(tokenizer.id_of("<|im_end|>"), kImEnd);
  EXPECT_EQ(tokenizer.id_of("Ġhello"), kSpaceHello);
  EXPECT_EQ(tokenizer.id_of("nope"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(kImEnd));
  EXPECT_FALSE(tokenizer.is_special(kTag));
}

TEST(Tokenizer, IdentityFollowsTheFile) {
  Json other = tiny_tokenizer_json();
  other["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(tiny_tokenizer().identity(), tiny_tokenizer().identity());
  EXPECT_NE(tiny_tokenizer().identity(), Tokenizer::parse(other.dump(), "t").identity());
}

TEST(Tokenizer, NormalizerComposesTextAndNormalizedTokens) {
  Json spec = tiny_tokenizer_json();
  spec["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  Json plain = added_token_json(kTinyIds, "e\u0301", false);
  Json normalized = added_token_json(kTinyIds + 1, "o\u0301", false);
  normalized["normalized"] = true;
  spec["added_tokens"].push_back(plain);
  spec["added_tokens"].push_back(normalized);
  const Tokenizer tokenizer = Tokenizer::parse(spec.dump(), "t");
  EXPECT_EQ(tokenizer.encode("a\u0301"), byte_ids("\u00e1"));
  EXPECT_EQ(tokenizer.encode("e\u0301"), (Ids{kTinyIds}));  // found before composing
  EXPECT_EQ(tokenizer.encode("\u00e9"), byte_ids("\u00e9"));
  EXPECT_EQ(tokenizer.encode("\u00f3"), (Ids{kTinyIds + 1}));  // found after composing
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = tiny_tokenizer();
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) {
    threads.emplace_back([&tokenizer, &result] {
      for (int i = 0; i < 200; ++i) {
        result = tokenizer.encode("hello <|im_end|> lll hello " + std::to_string(i % 7));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Ids& result : results) {
    EXPECT_EQ(result, tokenizer.encode("hello <|im_end|> lll hello 3"));
  }
}

TEST(Tokenizer, IllFormedTextIsRefused) {
  EXPECT_THAT(refusal([] { (void)tiny_tokenizer().encode("\xC3("); }), HasSubstr("UTF-8"));
}

TEST(Tokenizer, UnsupportedComponentsAreRefusedByName) {
  const std::vector<std::tuple<const char*, Json, const char*>> cases = {
      {"normalizer", {{"type", "NFKC"}}, "normalizer: unsupported component (got NFKC"},
      {"normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}},
       "normalizer[0]: unsupported component (got Lowercase"},
      {"pre_tokenizer",
       {{"type", "Metaspace"}},
       "pre_tokenizer: unsupported component (got Metaspace"},
      {"pre_tokenizer", nullptr, "'pre_tokenizer' is missing"},
      {"decoder", {{"type", "WordPiece"}}, "decoder: unsupported component (got WordPiece"},
      {"model", {{"type", "WordPiece"}}, "model: unsupported model (got WordPiece"},
      {"model", nullptr, "'model' is missing"},
      {"version", "2.0", "unknown version (got 2.0"},
      {"version", 1, "'version' has a wrong value"},
      {"added_tokens", "x", "added_tokens"},
      {"extra", true, "unknown setting 'extra'"}};
  for (const auto& [key, value, part] : cases) {
    Json spec = tiny_tokenizer_json();
    spec[key] = value;
    EXPECT_THAT(refusal([&] { (void)Tokenizer::parse(spec.dump(), "m/tokenizer.json"); }),
                AllOf(HasSubstr("m/tokenizer.json: "), HasSubstr(part)))
        << key;
  }
}

TEST(Tokenizer, MissingOrMalformedFilesNameThePath) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "longhaul_tokenizer_test";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "tokenizer.json");
  EXPECT_THAT(refusal([&] { (void)Tokenizer::load(folder); }), HasSubstr("has no tokenizer.json"));
  EXPECT_THAT(refusal([&] { (void)Tokenizer::load(folder / "gone"); }), HasSubstr("gone"));
  std::ofstream(folder / "tokenizer.json") << "{\"version\":\n oops}";
  EXPECT_THAT(refusal([&] { (void)Tokenizer::load(folder); }), HasSubstr("tokenizer.json:2"));
  std::ofstream(folder / "tokenizer.json") << tiny_tokenizer_json().dump();
  EXPECT_EQ(Tokenizer::load(folder).encode("hello"), (Ids{kHello}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace longhaul::text
