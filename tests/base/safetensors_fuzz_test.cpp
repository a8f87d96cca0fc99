// Seeded mutations of valid files: whatever the bytes, the reader either accepts and every view
// lies inside the file, or throws a UserError. Under the sanitizer build any stray access fails the
// test.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/safetensors.h"
#include "base/scratch.h"

namespace longhaul::base {
namespace {

using test::put_file;
using test::ScratchFolder;

constexpr int kFiles = 6000;

std::string seed_file(const ScratchFolder& scratch) {
  const std::vector<float> floats(12, 1.0F);
  const std::vector<std::uint16_t> halves(5, 0x3F80);
  const std::vector<TensorToWrite> tensors = {
      {.name = "model.layers.0.w",
       .dtype = Dtype::kFloat32,
       .shape = {3, 4},
       .bytes = std::as_bytes(std::span(floats))},
      {.name = "h",
       .dtype = Dtype::kBFloat16,
       .shape = {5},
       .bytes = std::as_bytes(std::span(halves))},
      {.name = "none", .dtype = Dtype::kFloat16, .shape = {0}, .bytes = {}}};
  write_safetensors(scratch / "seed", tensors, {{"format", "pt"}});
  return test::get_file(scratch / "seed");
}

/// One to four edits: bit flips, other bytes, cuts, repeats, digits and brackets swapped for
/// others.
std::string mutate(std::string text, const CounterRng& rng) {
  std::uint64_t counter = 0;
  const auto below = [&](std::uint64_t bound) { return rng.below(counter++, bound); };
  constexpr std::string_view kTokens = "0123456789-{}[]\",:.eE\\ntf ";
  for (std::uint64_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) {
    const std::size_t at =
        below(2) == 0 ? below(text.size()) : below(std::min<std::size_t>(text.size(), 300));
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(below(256));
        break;
      case 2:
        text.resize(at);
        break;
      case 3:
        text.insert(at, text.substr(at, below(40)));
        break;
      case 4:
        text.erase(at, below(20));
        break;
      default:
        text[at] = kTokens[below(kTokens.size())];
        break;
    }
  }
  return text;
}

/// Reads every byte of every view; returns whether the file was accepted.
bool read_everything(const std::filesystem::path& path) {
  try {
    const SafetensorsReader reader(path);
    unsigned sum = 0;
    for (const auto& [name, view] : reader.tensors()) {
      for (const std::byte byte : view.bytes) {
        sum += std::to_integer<unsigned>(byte);
      }
      EXPECT_EQ(view.bytes.size(),
                static_cast<std::size_t>(view.num_elements()) * dtype_bytes(view.dtype));
      try {
        std::vector<float> values(static_cast<std::size_t>(view.num_elements()));
        to_float(view, name, values);
      } catch (const UserError&) {
      }
    }
    return sum < ~0U;
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 1U);
    return false;
  }
}

TEST(SafetensorsFuzz, MutatedFilesAreReadInBoundsOrRefused) {
  const ScratchFolder scratch;
  const std::string seed = seed_file(scratch);
  int accepted = 0;
  for (std::uint64_t i = 0; i < kFiles; ++i) {
    // A fresh name each time: some file systems flush a file that is truncated and written again.
    const std::filesystem::path path = scratch / std::to_string(i);
    put_file(path, mutate(seed, CounterRng(1, RngPurpose::kSampling, i)));
    accepted += read_everything(path) ? 1 : 0;
    std::filesystem::remove(path);
  }
  // Both outcomes occur, or the mutations would prove nothing.
  EXPECT_GT(accepted, kFiles / 50);
  EXPECT_LT(accepted, kFiles * 4 / 5);
}

}  // namespace
}  // namespace longhaul::base
