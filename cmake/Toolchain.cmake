# Compiler cache, linker and sanitizers: speed of the build, never its meaning.
find_program(LONGHAUL_CCACHE ccache)
if(LONGHAUL_CCACHE)
  # Precompiled headers need the sloppiness; the base folder lets two build folders share results.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LONGHAUL_CCACHE})
endif()

find_program(LONGHAUL_MOLD mold)
if(LONGHAUL_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(LONGHAUL_SANITIZE)
  add_compile_options(-fsanitize=${LONGHAUL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LONGHAUL_SANITIZE})
endif()
