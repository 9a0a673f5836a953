# Everything the project builds against, found in one place. Libraries come from the distribution; the CUDA headers come
# from an installed toolkit, else from the PyPI wheels that scripts/setup.sh unpacks into the build tree. Neither libcuda
# nor libnvrtc is linked: both are opened at run time.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CLI11 REQUIRED)
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
find_library(ZSTD_STATIC_LIBRARY libzstd.a REQUIRED)

if(KERNELWRIGHT_PORTABLE)
  add_library(kernelwright_fmt ALIAS fmt::fmt-header-only)
  set(KERNELWRIGHT_CRYPTO_LIBRARY libcrypto.a)
  set(KERNELWRIGHT_ZSTD_LIBRARY ${ZSTD_STATIC_LIBRARY})
  add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections -s)
  add_compile_options(-ffunction-sections -fdata-sections -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
else()
  add_library(kernelwright_fmt ALIAS fmt::fmt)
  set(KERNELWRIGHT_CRYPTO_LIBRARY OpenSSL::Crypto)
  set(KERNELWRIGHT_ZSTD_LIBRARY ${ZSTD_LIBRARY})
endif()

find_path(KERNELWRIGHT_CUDA_INCLUDE cuda.h
          HINTS $ENV{CUDA_HOME}/include ${CMAKE_BINARY_DIR}/cuda/include
          PATHS /usr/local/cuda/include /opt/cuda/include
          DOC "Folder of cuda.h and nvrtc.h")
if(NOT KERNELWRIGHT_CUDA_INCLUDE)
  message(FATAL_ERROR "No cuda.h: set CUDA_HOME, or let scripts/setup.sh fetch the headers")
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wno-missing-field-initializers)
# GCC 12 sees overlapping copies in every "literal" + std::string (GCC bug 105651).
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(KERNELWRIGHT_SANITIZE)
  add_compile_options(-fsanitize=${KERNELWRIGHT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KERNELWRIGHT_SANITIZE})
endif()
