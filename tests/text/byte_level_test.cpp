#include "text/byte_level.h"

#include <gtest/gtest.h>

namespace longhaul::text {
namespace {

TEST(ByteLevel, WritesSpaceAndNewlineAsGpt2Does) {
  EXPECT_EQ(to_byte_level(" the\n"), "ĠtheĊ");
  EXPECT_EQ(to_byte_level("é"), "Ã©");
  EXPECT_EQ(to_byte_level(std::string_view("\0\xAD\x7F", 3)), "ĀŃġ");
}

TEST(ByteLevel, EveryByteComesBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(static_cast<unsigned char>(byte));
    EXPECT_EQ(from_byte_level(to_byte_level({&c, 1})), std::string(1, c)) << byte;
  }
}

TEST(ByteLevel, CharactersOutsideTheTableStandForNoByte) {
  EXPECT_EQ(from_byte_level("a b"), std::nullopt);
  EXPECT_EQ(from_byte_level("｜"), std::nullopt);
  EXPECT_EQ(from_byte_level("\u0144"), std::nullopt);
  EXPECT_EQ(from_byte_level(""), "");
}

}  // namespace
}  // namespace longhaul::text
