// Lets safetensors_oracle.py drive the C++ reader and writer:
//   copy IN OUT         reads IN, writes all its tensors and metadata to OUT
//   floats IN OUT       every F32, F16 and BF16 tensor of IN as F32
//   round IN OUT        every F32 tensor X of IN as X.bf16 and X.f16
//   check FILE …        one line per file: "ok", or the message
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/safetensors.h"

namespace {

using longhaul::base::Dtype;
using longhaul::base::SafetensorsReader;
using longhaul::base::TensorToWrite;

void copy(const SafetensorsReader& reader, const std::string& out) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, view] : reader.tensors()) {
    tensors.push_back(
        {.name = name, .dtype = view.dtype, .shape = view.shape, .bytes = view.bytes});
  }
  longhaul::base::write_safetensors(out, tensors, reader.metadata());
}

std::vector<float> floats_of(const SafetensorsReader& reader, const std::string& name) {
  const auto& view = reader.at(name);
  std::vector<float> values(static_cast<std::size_t>(view.num_elements()));
  longhaul::base::to_float(view, name, values);
  return values;
}

void write_floats(const SafetensorsReader& reader, const std::string& out) {
  std::vector<std::vector<float>> values;
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, view] : reader.tensors()) {
    values.push_back(floats_of(reader, name));
    tensors.push_back({.name = name,
                       .dtype = Dtype::kFloat32,
                       .shape = view.shape,
                       .bytes = std::as_bytes(std::span(values.back()))});
  }
  longhaul::base::write_safetensors(out, tensors, {});
}

void write_rounded(const SafetensorsReader& reader, const std::string& out) {
  std::vector<std::vector<std::uint16_t>> values;
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const std::string& name, const auto& view, Dtype dtype,
                       std::vector<std::uint16_t> bits) {
    values.push_back(std::move(bits));
    tensors.push_back({.name = name,
                       .dtype = dtype,
                       .shape = view.shape,
                       .bytes = std::as_bytes(std::span(values.back()))});
  };
  for (const auto& [name, view] : reader.tensors()) {
    std::vector<std::uint16_t> bf16;
    std::vector<std::uint16_t> f16;
    for (const float value : floats_of(reader, name)) {
      bf16.push_back(longhaul::base::float_to_bf16(value));
      f16.push_back(longhaul::base::float_to_f16(value));
    }
    add(name + ".bf16", view, Dtype::kBFloat16, std::move(bf16));
    add(name + ".f16", view, Dtype::kFloat16, std::move(f16));
  }
  longhaul::base::write_safetensors(out, tensors, {});
}

void check(const std::string& file) {
  try {
    const SafetensorsReader reader(file);
    std::puts("ok");
  } catch (const longhaul::base::UserError& error) {
    std::puts(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() >= 2 && args[0] == "check") {
    for (std::size_t i = 1; i < args.size(); ++i) {
      check(args[i]);
    }
    return 0;
  }
  if (args.size() != 3) {
    return 2;
  }
  const SafetensorsReader reader(args[1]);
  if (args[0] == "copy") {
    copy(reader, args[2]);
  } else if (args[0] == "floats") {
    write_floats(reader, args[2]);
  } else if (args[0] == "round") {
    write_rounded(reader, args[2]);
  } else {
    return 2;
  }
  return 0;
}
