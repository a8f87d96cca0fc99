# Targets format-check, format and tidy. One stamp per file or batch: what has not changed costs nothing.
#   cmake --build --preset cpu --target format-check tidy
find_program(LONGHAUL_CLANG_FORMAT clang-format)
find_program(LONGHAUL_CLANG_TIDY clang-tidy)
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

# One check per eight sources of a torch-free library: most of the time goes to the headers they share.
function(longhaul_add_tidy)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(script ${CMAKE_SOURCE_DIR}/tests/lint/tidy_batch.py)
  get_property(targets GLOBAL PROPERTY LONGHAUL_TORCH_FREE)
  foreach(target ${targets})
    get_target_property(files ${target} SOURCES)
    list(FILTER files EXCLUDE REGEX "\\$<")  # objects of other targets
    get_target_property(folder ${target} SOURCE_DIR)
    list(TRANSFORM files PREPEND ${folder}/)
    set(includes "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
    set(definitions "$<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>")
    set(batch_number 0)
    while(files)
      list(SUBLIST files 0 8 batch)
      list(REMOVE_ITEM files ${batch})
      set(stamp ${LONGHAUL_STAMPS}/${target}_${batch_number}.tidy)
      math(EXPR batch_number "${batch_number} + 1")
      add_custom_command(OUTPUT ${stamp} DEPFILE ${stamp}.d
        DEPENDS ${batch} ${CMAKE_SOURCE_DIR}/.clang-tidy ${script}
        COMMAND ${Python3_EXECUTABLE} ${script} ${LONGHAUL_CLANG_TIDY} ${CMAKE_CXX_COMPILER} ${CMAKE_SOURCE_DIR} ${stamp}
                ${batch} -- -std=c++20 "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>"
                "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},;-D>>"
        COMMAND_EXPAND_LISTS VERBATIM COMMENT "clang-tidy, ${target} ${batch_number}")
      list(APPEND stamps ${stamp})
    endwhile()
  endforeach()
  add_custom_target(tidy DEPENDS ${stamps})
endfunction()

if(LONGHAUL_CLANG_FORMAT)
  longhaul_add_format()
endif()
if(LONGHAUL_CLANG_TIDY)
  longhaul_add_tidy()
endif()
