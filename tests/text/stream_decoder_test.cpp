#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include "text/tiny_tokenizer.h"

namespace longhaul::text {
namespace {

TEST(StreamDecoder, OnlyWholeCharactersComeOut) {
  StreamDecoder decoder(tiny_tokenizer(), true);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x99), "");
  EXPECT_EQ(decoder.push(0x82), "🙂");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, BrokenCharactersBecomeReplacements) {
  StreamDecoder decoder(tiny_tokenizer(), true);
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.push('x'), "\uFFFDx");
  EXPECT_EQ(decoder.push(0x80), "\uFFFD");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, SpecialTokensAreSkippedOnRequest) {
  StreamDecoder skipping(tiny_tokenizer(), true);
  EXPECT_EQ(skipping.push(kImEnd), "");
  EXPECT_EQ(skipping.push(kTag), "<tag>");
  StreamDecoder keeping(tiny_tokenizer(), false);
  EXPECT_EQ(keeping.push(kImEnd), "<|im_end|>");
}

}  // namespace
}  // namespace longhaul::text
