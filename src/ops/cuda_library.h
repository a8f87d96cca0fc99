// The shared object with everything CUDA, opened at run time so that one program serves machines with
// and without a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "config/config.h"

namespace longhaul::ops {

/// Where the shared object belongs: beside this program.
std::filesystem::path cuda_library_path();

/// Opens `liblonghaul_cuda.so` (default: beside this program), makes GPU `device` this process's own
/// and registers its backend.
///
/// Errors  SystemError when the library, libtorch's CUDA part or the driver is missing
void load_cuda_backend(int device, const std::filesystem::path& library = {});

/// The device that this process computes on. On a GPU its part of the program is loaded first;
/// SystemError when that cannot be.
at::Device open_device(const config::Config& config);

/// A function of the shared object, which load_cuda_backend() has opened.
///
/// Errors  InternalError when it is not open or has no such function
void* cuda_symbol(const char* name);

}  // namespace longhaul::ops
