# kernelwright::sodium, for the build and for the installed package alike, if the machine has libsodium. Without it, bundles
# are not signed and signatures are not checked. Debian's libsodium-dev ships no CMake package.
if(NOT TARGET kernelwright::sodium)
  if(NOT KERNELWRIGHT_SODIUM_NAME)
    set(KERNELWRIGHT_SODIUM_NAME sodium)
  endif()
  find_path(SODIUM_INCLUDE_DIR sodium.h)
  find_library(SODIUM_LIBRARY ${KERNELWRIGHT_SODIUM_NAME})
  if(SODIUM_INCLUDE_DIR AND SODIUM_LIBRARY)
    add_library(kernelwright::sodium UNKNOWN IMPORTED)
    set_target_properties(kernelwright::sodium PROPERTIES
      IMPORTED_LOCATION ${SODIUM_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${SODIUM_INCLUDE_DIR})
  endif()
endif()
