# Everything the project builds against, found in one place. Libraries come from the distribution. The CUDA headers come
# from an installed toolkit, else from the PyPI wheels that scripts/setup.sh unpacks into the build tree. Neither
# libcuda nor libnvrtc is linked: both are opened at run time. A build that makes a wheel fetches what the machine lacks,
# and a portable one fetches everything, so that its wheel is the same wherever it is built.
find_package(Threads REQUIRED)
if(KERNELWRIGHT_WHEEL)
  include(KernelwrightFetch)
  kernelwright_find_or_fetch()
else()
  find_package(fmt REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)
  include(${CMAKE_CURRENT_LIST_DIR}/KernelwrightZstd.cmake)
endif()

set(KERNELWRIGHT_ZSTD_LIBRARY kernelwright::zstd)
if(KERNELWRIGHT_PORTABLE AND NOT KERNELWRIGHT_WHEEL)
  find_library(KERNELWRIGHT_ZSTD_STATIC libzstd.a REQUIRED)
  set(KERNELWRIGHT_ZSTD_LIBRARY ${KERNELWRIGHT_ZSTD_STATIC})
endif()
# libsodium is a choice. A binary for another machine links it statically; a wheel for every Linux goes without.
if(NOT (KERNELWRIGHT_PORTABLE AND KERNELWRIGHT_WHEEL))
  if(KERNELWRIGHT_PORTABLE OR KERNELWRIGHT_WHEEL)
    set(KERNELWRIGHT_SODIUM_NAME libsodium.a)
  endif()
  include(${CMAKE_CURRENT_LIST_DIR}/KernelwrightSodium.cmake)
endif()
if(KERNELWRIGHT_PORTABLE OR KERNELWRIGHT_WHEEL)
  # One file that contains no path of this machine, and no second copy of what a program or a Python may bring.
  add_library(kernelwright_fmt ALIAS fmt::fmt-header-only)
  add_link_options(-Wl,--gc-sections -s)
  add_compile_options(-ffunction-sections -fdata-sections
                      -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=${CMAKE_BINARY_DIR}/=)
  set(CMAKE_SKIP_RPATH ON)
  # Another machine, and the libstdc++ of a Python's own folder, may be older than this one. Some distributions lack the
  # static library; a wheel for the machine that builds it may do without.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LINK_OPTIONS -static-libstdc++ -static-libgcc)
  check_cxx_source_compiles("#include <string>\nint main(int n, char** v) { return std::string(*v).size() == n; }"
                            KERNELWRIGHT_HAS_STATIC_LIBSTDCXX)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  if(KERNELWRIGHT_PORTABLE OR KERNELWRIGHT_HAS_STATIC_LIBSTDCXX)
    add_link_options(-static-libstdc++ -static-libgcc)
  endif()
else()
  add_library(kernelwright_fmt ALIAS fmt::fmt)
endif()

# setup.sh names the folder itself; this search serves a plain `cmake`. A hidden toolkit stays hidden here too.
if(KERNELWRIGHT_CUDA_INCLUDE)
  # kernelwright_find_or_fetch() or the caller has named it.
elseif("$ENV{KERNELWRIGHT_HIDE_TOOLKIT}" MATCHES "^0?$")
  find_path(KERNELWRIGHT_CUDA_INCLUDE cuda.h
            HINTS $ENV{CUDA_HOME}/include ${CMAKE_BINARY_DIR}/cuda/include
            PATHS /usr/local/cuda/include /opt/cuda/include
            DOC "Folder of cuda.h")
else()
  find_path(KERNELWRIGHT_CUDA_INCLUDE cuda.h PATHS ${CMAKE_BINARY_DIR}/cuda/include NO_DEFAULT_PATH
            DOC "Folder of cuda.h")
endif()
if(NOT KERNELWRIGHT_CUDA_INCLUDE)
  message(FATAL_ERROR "No cuda.h: set CUDA_HOME, or run scripts/setup.sh --build-dir ${CMAKE_BINARY_DIR} to fetch the headers")
endif()

# kernelwright_see_cuda(<file>...): lets these sources of the calling folder include cuda.h, through a link
# in the build tree whose name has the version. If a toolkit of the same version comes, goes or moves, nothing is
# rebuilt; with another version, these files are. GCC must not resolve the link when it writes depfiles.
file(STRINGS ${KERNELWRIGHT_CUDA_INCLUDE}/cuda.h cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
string(REGEX REPLACE "[^0-9]" "" cuda_version "${cuda_version}")
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
file(CREATE_LINK ${KERNELWRIGHT_CUDA_INCLUDE} ${CMAKE_BINARY_DIR}/include/cuda-${cuda_version} SYMBOLIC)
set(KERNELWRIGHT_CUDA_OPTIONS -isystem ${CMAKE_BINARY_DIR}/include/cuda-${cuda_version}
    $<$<CXX_COMPILER_ID:GNU>:-fno-canonical-system-headers>)
function(kernelwright_see_cuda)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS ${KERNELWRIGHT_CUDA_OPTIONS})
endfunction()

find_program(KERNELWRIGHT_CCACHE ccache)
if(KERNELWRIGHT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  file(REAL_PATH ${CMAKE_CXX_COMPILER} compiler)
  if(NOT compiler MATCHES "ccache$")  # /usr/lib/ccache/g++ is ccache already
    set(CMAKE_C_COMPILER_LAUNCHER ${KERNELWRIGHT_CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${KERNELWRIGHT_CCACHE})
  endif()
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wno-missing-field-initializers)
# GCC 12 warns of overlapping copies in every "literal" + std::string (GCC bug 105651).
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# GCC's flow analysis loses track of a std::variant that is moved, and warns.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
# GCC 12 leaves an empty part of a function behind where its cold blocks end in a call that never returns. LLD then drops
# the unwind table of what lies at the same address, and an exception from there ends the process.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fno-reorder-blocks-and-partition>)
if(KERNELWRIGHT_SANITIZE)
  set(KERNELWRIGHT_SANITIZE_OPTIONS -fsanitize=${KERNELWRIGHT_SANITIZE} -fno-omit-frame-pointer)
  if(NOT KERNELWRIGHT_SANITIZE_TARGETS)
    add_compile_options(${KERNELWRIGHT_SANITIZE_OPTIONS})
  endif()
  add_link_options(-fsanitize=${KERNELWRIGHT_SANITIZE})
endif()
