# The PyPI wheel torch==2.11.0 as imported targets (find_package(Torch) of a CUDA wheel demands a CUDA
# toolkit). CPU code needs libtorch_cpu and libc10 alone; everything CUDA lives in a shared object of its own.
file(GLOB LONGHAUL_TORCH_CANDIDATES ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
set(LONGHAUL_TORCH_DIR "${LONGHAUL_TORCH_CANDIDATES}" CACHE PATH "Folder of the torch wheel (holds include/ and lib/)")
if(NOT EXISTS ${LONGHAUL_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "torch wheel not found (LONGHAUL_TORCH_DIR='${LONGHAUL_TORCH_DIR}'). "
                      "Run ./quickstart, or: python3 -m venv .venv && .venv/bin/pip install --no-deps torch==2.11.0")
endif()

add_library(torch::c10 SHARED IMPORTED)
set_target_properties(torch::c10 PROPERTIES IMPORTED_LOCATION ${LONGHAUL_TORCH_DIR}/lib/libc10.so)
target_include_directories(torch::c10 SYSTEM INTERFACE
  ${LONGHAUL_TORCH_DIR}/include ${LONGHAUL_TORCH_DIR}/include/torch/csrc/api/include)
# The wheel ships its own, newer fmt headers without their library; files that see torch use those, header-only.
target_compile_definitions(torch::c10 INTERFACE FMT_HEADER_ONLY=1)
# libtorch_cpu needs libcudart and libcupti at run time; its own rpath or the loader's cache finds them.
target_link_options(torch::c10 INTERFACE -Wl,--allow-shlib-undefined -Wl,-rpath,${LONGHAUL_TORCH_DIR}/lib
  -Wl,-rpath-link,${LONGHAUL_TORCH_DIR}/lib)

add_library(torch::cpu SHARED IMPORTED)
set_target_properties(torch::cpu PROPERTIES IMPORTED_LOCATION ${LONGHAUL_TORCH_DIR}/lib/libtorch_cpu.so)
# -fopenmp for every torch-facing file: the shared precompiled header demands equal flags.
target_link_libraries(torch::cpu INTERFACE torch::c10 OpenMP::OpenMP_CXX)

# The wheel's own OpenMP runtime: one copy per process.
add_library(torch::gomp SHARED IMPORTED)
set_target_properties(torch::gomp PROPERTIES IMPORTED_LOCATION ${LONGHAUL_TORCH_DIR}/lib/libgomp.so.1)
