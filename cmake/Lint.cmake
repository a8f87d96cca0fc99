# Targets format-check, format and tidy. One stamp per file: what has not changed costs nothing.
#   cmake --build --preset cpu --target format-check tidy
find_program(LONGHAUL_CLANG_FORMAT clang-format)
find_program(LONGHAUL_CLANG_TIDY clang-tidy)
set(LONGHAUL_TIDY_FOLDERS base config metrics kernels plan text data)  # those without libtorch
set(LONGHAUL_TIDY_FILES src/train/adapter_config.cpp src/train/checkpoint_files.cpp src/train/run_folder.cpp
    src/train/trainer_state.cpp)  # as in train_files
set(LONGHAUL_STAMPS ${CMAKE_BINARY_DIR}/lint)

function(longhaul_stamp out file kind)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${file})
  cmake_path(GET name PARENT_PATH folder)
  file(MAKE_DIRECTORY ${LONGHAUL_STAMPS}/${folder})
  set(${out} ${LONGHAUL_STAMPS}/${name}.${kind} PARENT_SCOPE)
endfunction()

function(longhaul_add_format)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS src/*.h src/*.cpp src/*.cu src/*.cuh tests/*.h tests/*.cpp
       bench/*.h bench/*.cpp cmake/*.h)
  foreach(file ${files})
    longhaul_stamp(stamp ${file} format)
    add_custom_command(OUTPUT ${stamp} DEPENDS ${file} ${CMAKE_SOURCE_DIR}/.clang-format
      COMMAND ${LONGHAUL_CLANG_FORMAT} --dry-run -Werror ${file}
      COMMAND ${CMAKE_COMMAND} -E touch ${stamp} COMMENT "clang-format")
    list(APPEND stamps ${stamp})
  endforeach()
  add_custom_target(format-check DEPENDS ${stamps})
  add_custom_target(format COMMAND ${LONGHAUL_CLANG_FORMAT} -i ${files})
endfunction()

function(longhaul_add_tidy)
  list(TRANSFORM LONGHAUL_TIDY_FILES PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  foreach(folder ${LONGHAUL_TIDY_FOLDERS})
    file(GLOB in_folder CONFIGURE_DEPENDS src/${folder}/*.cpp)
    list(APPEND files ${in_folder})
  endforeach()
  foreach(file ${files})
    longhaul_stamp(stamp ${file} tidy)
    add_custom_command(OUTPUT ${stamp} DEPFILE ${stamp}.d
      DEPENDS ${file} ${CMAKE_SOURCE_DIR}/.clang-tidy ${CMAKE_SOURCE_DIR}/tests/lint/tidy_file.sh
      COMMAND ${CMAKE_SOURCE_DIR}/tests/lint/tidy_file.sh ${LONGHAUL_CLANG_TIDY} ${CMAKE_CXX_COMPILER}
              ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${file} ${stamp} COMMENT "clang-tidy ${file}")
    list(APPEND stamps ${stamp})
  endforeach()
  add_custom_target(tidy DEPENDS ${stamps})
endfunction()

if(LONGHAUL_CLANG_FORMAT)
  longhaul_add_format()
endif()
if(LONGHAUL_CLANG_TIDY)
  longhaul_add_tidy()
endif()
