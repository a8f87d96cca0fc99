# longhaul_library(<folder> SOURCES … DEPS … [TORCH]): one library per folder of src/. DEPS is the level
# table of docs/architecture.md, so the graph is written once. TORCH says that it sees libtorch.
set(LONGHAUL_WARNINGS -Wall -Wextra -Wshadow -Wconversion)
# The tests' own code compiles faster with less of it; what they test is compiled as it is shipped.
set(LONGHAUL_TEST_OPTIONS ${LONGHAUL_WARNINGS} $<$<CONFIG:Release>:-O1>)

# longhaul_unity(<target> SEPARATE <files>): compiles a torch-free target several files at a time, which takes a third of
# the time; SEPARATE names the files whose own names clash. Warnings that depend on the neighbours are off.
option(LONGHAUL_UNITY "Compile torch-free targets several files at a time" OFF)
function(longhaul_unity target)
  cmake_parse_arguments(ARG "" "" "SEPARATE" ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  target_compile_options(${target} PRIVATE -Wno-shadow -Wno-subobject-linkage)
  set_source_files_properties(${ARG_SEPARATE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

function(longhaul_library folder)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS" ${ARGN})
  set(target longhaul_${folder})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(longhaul::${folder} ALIAS ${target})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE ${LONGHAUL_WARNINGS})
  target_link_libraries(${target} PUBLIC ${ARG_DEPS})
  if(ARG_TORCH)
    target_link_libraries(${target} PUBLIC torch::cpu)
    longhaul_pch(${target} torch)
  else()
    set_property(GLOBAL APPEND PROPERTY LONGHAUL_TORCH_FREE ${target})
    if(LONGHAUL_UNITY)
      longhaul_unity(${target})
    endif()
  endif()
endfunction()

# One precompiled header per kind of file, built once: torch for the product, torch_test with all of ATen and
# GoogleTest, test with GoogleTest alone.
function(longhaul_pch target kind)
  set(owner longhaul_${kind}_pch)
  if(NOT TARGET ${owner})
    file(WRITE ${CMAKE_BINARY_DIR}/${kind}_pch.cpp "")
    add_library(${owner} OBJECT ${CMAKE_BINARY_DIR}/${kind}_pch.cpp)
    if(kind MATCHES torch)
      target_link_libraries(${owner} PRIVATE torch::cpu)
    endif()
    if(kind MATCHES test)
      target_link_libraries(${owner} PRIVATE GTest::gtest GTest::gmock OpenMP::OpenMP_CXX)
    endif()
    target_compile_options(${owner} PRIVATE ${LONGHAUL_WARNINGS})
    target_precompile_headers(${owner} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${kind}_pch.h)
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)  # compiled -fPIE by default, which a header compiled -fPIC refuses
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

# longhaul_test_tool(<name> SOURCES … DEPS … [LIBRARY]): a program that tests start, or what several test programs
# share; both see libtorch.
function(longhaul_test_tool target)
  cmake_parse_arguments(ARG "LIBRARY" "" "SOURCES;DEPS" ${ARGN})
  if(ARG_LIBRARY)
    add_library(${target} STATIC ${ARG_SOURCES})
  else()
    add_executable(${target} ${ARG_SOURCES})
  endif()
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} torch::cpu GTest::gtest GTest::gmock)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${target} PRIVATE ${LONGHAUL_TEST_OPTIONS})
  target_compile_definitions(${target} PRIVATE LONGHAUL_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             LONGHAUL_BINARY_DIR="${CMAKE_BINARY_DIR}")
  longhaul_pch(${target} torch_test)
endfunction()

# longhaul_test(<folder> SOURCES … DEPS … [TORCH] [SEPARATE …]): one test program per folder of tests/,
# registered with ctest.
function(longhaul_test folder)
  cmake_parse_arguments(ARG "TORCH" "LABEL;TIMEOUT" "SOURCES;DEPS;SEPARATE" ${ARGN})
  set(target ${folder}_test)
  add_executable(${target} ${ARG_SOURCES})
  # OpenMP for every test: the shared precompiled header demands equal flags.
  target_link_libraries(${target} PRIVATE ${ARG_DEPS} GTest::gtest_main GTest::gmock OpenMP::OpenMP_CXX)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${target} PRIVATE ${LONGHAUL_TEST_OPTIONS})
  target_compile_definitions(${target} PRIVATE LONGHAUL_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             LONGHAUL_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set(label core)
  if(ARG_TORCH)
    target_link_libraries(${target} PRIVATE torch::cpu)
    longhaul_pch(${target} torch_test)
    set(label cpu)
  else()
    longhaul_pch(${target} test)
    if(LONGHAUL_UNITY)
      longhaul_unity(${target} SEPARATE ${ARG_SEPARATE})
    endif()
  endif()
  if(ARG_LABEL)
    set(label ${ARG_LABEL})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${folder}/" DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS ${label} TIMEOUT ${ARG_TIMEOUT})
endfunction()
