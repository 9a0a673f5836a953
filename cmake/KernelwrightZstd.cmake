# kernelwright::zstd, for the build and for the installed package alike: Debian's libzstd-dev ships no CMake package.
if(NOT TARGET kernelwright::zstd)
  find_path(ZSTD_INCLUDE_DIR zstd.h)
  find_library(ZSTD_LIBRARY zstd)
  if(NOT ZSTD_INCLUDE_DIR OR NOT ZSTD_LIBRARY)
    message(FATAL_ERROR "kernelwright needs zstd; on Debian and Ubuntu: apt-get install libzstd-dev")
  endif()
  add_library(kernelwright::zstd UNKNOWN IMPORTED)
  set_target_properties(kernelwright::zstd PROPERTIES
    IMPORTED_LOCATION ${ZSTD_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${ZSTD_INCLUDE_DIR})
endif()
