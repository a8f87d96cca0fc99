// What the GPU management library's functions take; it is opened at run time, without its header.
#pragma once

namespace longhaul::cli {

constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

/// Memory figures in the layout of the management library.
struct NvmlMemory {
  unsigned long long total;  // NOLINT(google-runtime-int): the library's own type
  unsigned long long free;   // NOLINT(google-runtime-int)
  unsigned long long used;   // NOLINT(google-runtime-int)
};
using NvmlDevice = void*;

}  // namespace longhaul::cli
