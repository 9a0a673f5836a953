# Precompiled headers, files compiled together, and the linker: what makes a clean build short.
#
# kernelwright_precompile(<target> <header>...): the target's C++ files start from a precompiled form of the standard library,
# of fmt and of <header>.... Every file still includes what it uses: a build with ccache has no precompiled headers, because
# ccache cannot share them between checkouts, and CMAKE_DISABLE_PRECOMPILE_HEADERS=ON turns them off too.
#
# kernelwright_precompile_as(<program> <library>): the program's C++ files start from what <library> has precompiled. Both
# must have the same optimisation, because GCC takes a precompiled header only where options and definitions are equal.
#
# kernelwright_compile_by_folder(<target> <file or folder>...): the target's files of one folder are compiled as one. The
# named files and folders are left out: their files give like things like names. With KERNELWRIGHT_COMPILE_BY_FOLDER=OFF each
# file is compiled by itself, so that a change of one file compiles that file alone.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()
option(KERNELWRIGHT_COMPILE_BY_FOLDER "Compile the files of a folder as one: a short clean build" ON)
function(kernelwright_compile_by_folder target)
  if(NOT KERNELWRIGHT_COMPILE_BY_FOLDER)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(folder ${source} DIRECTORY)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    get_filename_component(within ${name} DIRECTORY)
    if(options OR definitions OR name IN_LIST ARGN OR (within AND within IN_LIST ARGN) OR NOT source MATCHES "\\.cpp$")
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    else()
      string(MAKE_C_IDENTIFIER "${folder}" group)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes a file that another one includes for a header, whose classes may not have members of unnamed namespaces.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

set(KERNELWRIGHT_PRECOMPILED_STANDARD
    algorithm array chrono cmath cstdint cstring filesystem fstream functional map memory mutex optional set span sstream
    string string_view thread tuple utility variant vector fmt/format.h)
function(kernelwright_precompile target)
  set(headers ${KERNELWRIGHT_PRECOMPILED_STANDARD} ${ARGN})
  list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()
function(kernelwright_precompile_as program library)
  target_precompile_headers(${program} REUSE_FROM ${library})
  target_compile_definitions(${program} PRIVATE $<TARGET_PROPERTY:${library},COMPILE_DEFINITIONS>)
  set_target_properties(${program} PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # would be -fPIE, which no library has
  target_compile_options(${program} PRIVATE -fPIC)
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
