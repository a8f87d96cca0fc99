# CUDA: own kernels for sm_80 and sm_90a (PTX for newer GPUs), libtorch's CUDA part as imported target.
find_package(CUDAToolkit 13.0 REQUIRED)
set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "nvcc")
set(CMAKE_CUDA_ARCHITECTURES "80-real;90a-real;90-virtual" CACHE STRING "GPU architectures")
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know nvcc's flag
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)

add_library(torch::c10_cuda SHARED IMPORTED)
set_target_properties(torch::c10_cuda PROPERTIES IMPORTED_LOCATION ${LONGHAUL_TORCH_DIR}/lib/libc10_cuda.so)
add_library(torch::cuda SHARED IMPORTED)
set_target_properties(torch::cuda PROPERTIES IMPORTED_LOCATION ${LONGHAUL_TORCH_DIR}/lib/libtorch_cuda.so)
target_link_libraries(torch::cuda INTERFACE torch::c10_cuda torch::cpu CUDA::cudart)
target_include_directories(torch::cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
