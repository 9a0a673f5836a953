# Precompiled headers and the linker: what makes a clean build short.
#
# kernelwright_precompile(<target> <header>...): the target's C++ files start from a precompiled form of the standard library,
# of fmt and of <header>.... Every file still includes what it uses: a build with ccache has no precompiled headers, because
# ccache cannot share them between checkouts, and CMAKE_DISABLE_PRECOMPILE_HEADERS=ON turns them off too.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()

set(KERNELWRIGHT_PRECOMPILED_STANDARD
    algorithm array chrono cmath cstdint cstring filesystem fstream functional map memory mutex optional set span sstream
    string string_view thread tuple utility variant vector fmt/format.h)
function(kernelwright_precompile target)
  set(headers ${KERNELWRIGHT_PRECOMPILED_STANDARD} ${ARGN})
  list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# A linker that the distribution has and that is faster than its default.
find_program(KERNELWRIGHT_FAST_LINKER NAMES ld.mold ld.lld)
if(KERNELWRIGHT_FAST_LINKER AND NOT KERNELWRIGHT_PORTABLE AND NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld")
  string(REGEX REPLACE ".*/ld\\." "" linker ${KERNELWRIGHT_FAST_LINKER})
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LINK_OPTIONS -fuse-ld=${linker})
  check_cxx_source_compiles("int main() { return 0; }" KERNELWRIGHT_LINKS_WITH_${linker})
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  if(KERNELWRIGHT_LINKS_WITH_${linker})
    add_link_options(-fuse-ld=${linker})
  endif()
endif()
