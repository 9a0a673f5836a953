#!/usr/bin/env bash
# Gets a bare Debian or Ubuntu machine ready to build: packages, the CUDA headers and NVRTC. Whatever is there already is
# left alone, so a second run only looks. Called by a person, or sourced by the other scripts, which then call `setup`.
#
#   scripts/setup.sh [--build-dir DIR] [--hide-toolkit] [--clang]
#
# CUDA comes from an installed toolkit with NVRTC 12.8 or newer (CUDA_HOME, then the usual places), else from two pinned
# and hashed PyPI wheels, unpacked into DIR/cuda/{include,lib}: no nvcc and no driver is needed to build or to compile
# kernels. --hide-toolkit, or KERNELWRIGHT_HIDE_TOOLKIT=1, acts as if no toolkit were installed.

# In an empty environment bash has a PATH that its children do not see, and ccache crashes without a HOME.
export PATH HOME=${HOME:-~}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/scripts/terminal.sh"

oldest_cmake=3.25
oldest_nvrtc=12.8

# True if version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# The names of the packages that this machine still lacks. A tool that was installed without apt counts as present.
missing_packages() {
  local cxx
  cxx=$(command -v "${CXX:-g++}" || command -v c++) || echo g++
  at_least "$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')" "$oldest_cmake" || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  if [ -n "${with_clang:-}" ]; then
    command -v clang++ >/dev/null || echo clang
  fi
  local header_packages="fmt/core.h:libfmt-dev nlohmann/json.hpp:nlohmann-json3-dev CLI/CLI.hpp:libcli11-dev
    gtest/gtest.h:libgtest-dev gmock/gmock.h:libgmock-dev benchmark/benchmark.h:libbenchmark-dev
    zstd.h:libzstd-dev"
  local pair probe=''
  for pair in $header_packages; do
    if [ -z "$cxx" ]; then
      echo "${pair#*:}"  # no compiler to ask; apt skips what is there
    else
      probe+="#if !__has_include(<${pair%%:*}>)"$'\n'"missing ${pair#*:}"$'\n'"#endif"$'\n'
    fi
  done
  if [ -n "$cxx" ]; then
    printf '%s' "$probe" | "$cxx" -x c++ -std=c++20 -E -P - 2>/dev/null | sed -n 's/^missing //p' | tr -d ' '
  fi
}

# The packages that this machine lacks and that the build can do without: each has what it brings beside it.
missing_choices() {
  local cxx
  cxx=$(command -v "${CXX:-g++}" || command -v c++) || return 0
  # libsodium-dev: bundles are signed, and signatures are checked
  printf '#if !__has_include(<sodium.h>)\nmissing libsodium-dev\n#endif\n' | "$cxx" -x c++ -std=c++20 -E -P - 2>/dev/null |
    sed -n 's/^missing //p' | tr -d ' '
  # redis-server, nginx: tests of the remote cache start one. A person's machine gets no server unasked. libcurl's
  # headers: a test compares our numbers with them.
  if [ "${CI:-}" = true ]; then
    command -v redis-server >/dev/null || echo redis-server
    [ -x /usr/sbin/nginx ] || echo nginx
    printf '#if !__has_include(<curl/curl.h>)\nmissing libcurl4-openssl-dev\n#endif\n' |
      "$cxx" -x c++ -std=c++20 -E -P - 2>/dev/null | sed -n 's/^missing //p' | tr -d ' '
  fi
}

# install_packages <package...>: installs with apt-get, as root or through sudo. Otherwise prints one sentence that says
# what to type.
install_packages() {
  local as_root=()
  command -v apt-get >/dev/null ||
    die "These packages are missing and there is no apt-get here to install them: $*. Install your system's equivalents, then run this again."
  if [ "$(id -u)" -ne 0 ]; then
    { command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; } ||
      die "Packages are missing and installing them needs root; run: apt-get install -y $*"
    as_root=(sudo)
  fi
  note "installing $*"
  local log=$build_dir/logs/packages.log
  mkdir -p "$build_dir/logs"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get)
  # A bare machine has no package lists yet, and old lists name files that mirrors no longer hold.
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null || {
    tail -n 15 "$log" | sed 's/^/    /' >&2
    die "apt-get could not install: $*. Without a network, install them from your own mirror; the whole log is $log"
  }
}

# install_choices <packages>: tries once for each build folder, and never asks for a password.
install_choices() {
  local refused=$build_dir/logs/choices-refused.txt
  if [ "$(cat "$refused" 2>/dev/null)" != "$1" ] && command -v apt-get >/dev/null &&
    { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; } && (install_packages $1); then
    return 0
  fi
  mkdir -p "$build_dir/logs"
  echo "$1" >"$refused"
  note "going on without $1: without libsodium-dev bundles cannot be signed; tests of servers that are missing are skipped"
}

# nvrtc_version <folder>: "13.0" if NVRTC and its builtins, which carry the version in their name, are in <folder>.
nvrtc_version() {
  local builtins
  for builtins in "$1"/libnvrtc-builtins.so.1[23].*; do
    builtins=${builtins##*/libnvrtc-builtins.so.}
    if [ -e "$1/libnvrtc.so.${builtins%%.*}" ]; then
      echo "$builtins" | cut -d. -f1,2
      return 0
    fi
  done
  return 1
}

# Sets cuda_include, cuda_lib and cuda_origin from an installed toolkit; false if no suitable one is installed.
find_toolkit() {
  local home lib version
  for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /opt/cuda /usr/lib/cuda /usr/local/cuda-1[23]*; do
    if [ -z "$home" ] || [ ! -e "$home/include/cuda.h" ] || [ ! -e "$home/include/nvrtc.h" ]; then
      continue
    fi
    for lib in "$home/lib64" "$home/lib" "$home/targets/$(uname -m)-linux/lib" "$home/targets/sbsa-linux/lib"; do
      version=$(nvrtc_version "$lib") || continue
      if at_least "$version" "$oldest_nvrtc"; then
        cuda_include=$home/include cuda_lib=$lib cuda_origin="toolkit in $home, NVRTC $version"
        return 0
      fi
      note "$lib has NVRTC $version, older than $oldest_nvrtc: looking further"
    done
  done
  return 1
}

# Gives this shell and all its children the environment of a machine without a toolkit: neither CMake, the linker nor
# the loader may find one by chance.
hide_toolkit() {
  export KERNELWRIGHT_HIDE_TOOLKIT=1
  unset CUDA_HOME CUDA_PATH CUDA_ROOT CUDAToolkit_ROOT CUDACXX LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH
  local kept='' folder
  local IFS=:
  for folder in $PATH; do
    case $folder in */cuda/bin | */cuda-*/bin) ;; *) kept+=${kept:+:}$folder ;; esac
  done
  export PATH=$kept
  kept=''
  for folder in ${LD_LIBRARY_PATH:-}; do
    case $folder in */cuda/* | */cuda-*/* | */nvidia/cu*) ;; *) kept+=${kept:+:}$folder ;; esac
  done
  if [ -n "$kept" ]; then export LD_LIBRARY_PATH=$kept; else unset LD_LIBRARY_PATH; fi
}

# Two wheels, the same on every machine: pip refuses a file whose hash is not listed. x86_64 first, then aarch64.
wheel_requirements() {
  cat <<'PINS'
nvidia-cuda-nvrtc==13.0.88 --hash=sha256:ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575 --hash=sha256:d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548 --hash=sha256:ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55
PINS
}

# Sets cuda_include and cuda_lib from the wheels. A single rename creates the folder, so an interrupted run leaves
# nothing that looks complete. The stamp names the pinned wheels.
use_wheels() {
  local home=$build_dir/cuda stamp pins
  pins=$(wheel_requirements)
  stamp=$home/pins.txt
  if [ "$(cat "$stamp" 2>/dev/null)" != "$pins" ]; then
    python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
    note "no CUDA toolkit with NVRTC $oldest_nvrtc or newer: fetching NVRTC and the headers from PyPI (90 MB, once)"
    local work=$build_dir/cuda.part log=$build_dir/logs/wheels.log wheel
    rm -rf "$work"
    mkdir -p "$work/wheels" "$build_dir/logs"
    printf '%s\n' "$pins" >"$work/pins.txt"
    python3 -m pip download --no-deps --only-binary=:all: --require-hashes -d "$work/wheels" -r "$work/pins.txt" \
      >"$log" 2>&1 </dev/null || {
      tail -n 8 "$log" | sed 's/^/    /' >&2
      die "pip could not fetch the CUDA wheels. Without a network, point PIP_FIND_LINKS at a folder that holds them, or install a CUDA toolkit; the whole log is $log"
    }
    for wheel in "$work"/wheels/*.whl; do
      python3 -m zipfile -e "$wheel" "$work/tree" || die "$wheel is damaged; remove it from pip's cache and run this again"
    done
    mv "$work/tree/nvidia/cu13/include" "$work/tree/nvidia/cu13/lib" "$work/"
    # Older than anything that was built: headers of a toolkit of the same version are equal, and need no rebuild.
    find "$work/include" -exec touch -d '2025-01-01' {} +
    # The .alt libraries are the compiler with Windows' integer sizes, and libcudart is never linked: 120 MB without
    # use.
    rm -rf "$work/tree" "$work/wheels" "$work"/lib/*.alt.* "$work"/lib/libcudart*
    [ -e "$work/include/cuda.h" ] && [ -e "$work/include/nvrtc.h" ] && nvrtc_version "$work/lib" >/dev/null ||
      die "The CUDA wheels lack cuda.h, nvrtc.h or libnvrtc under nvidia/cu13: their layout has changed"
    rm -rf "$home"
    mv "$work" "$home"
  fi
  cuda_include=$home/include cuda_lib=$home/lib cuda_origin="PyPI wheels, NVRTC $(nvrtc_version "$home/lib")"
}

# The executable of Triton Inference Server below the build folder, once get_triton_server has fetched it: 55 MB from PyPI, for
# x86-64 and glibc 2.35 or newer.
triton_server=triton-server/pytriton/tritonserver/bin/tritonserver
get_triton_server() {
  local home=$build_dir/triton-server work=$build_dir/triton-server.part
  local pin='nvidia-pytriton==0.7.0 --hash=sha256:21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df'
  [ "$(cat "$home/pin.txt" 2>/dev/null)" != "$pin" ] || return 0
  python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  rm -rf "$work" && mkdir -p "$work" && printf '%s\n' "$pin" >"$work/pin.txt" &&
    python3 -m pip download --no-deps --only-binary=:all: --require-hashes -d "$work" -r "$work/pin.txt" &&
    python3 -m zipfile -e "$work"/*.whl "$work" && chmod +x "$work/pytriton/tritonserver/bin/tritonserver" &&
    rm "$work"/*.whl && rm -rf "$home" && mv "$work" "$home"
}

# Does everything above for build_dir. Sets cuda_include, cuda_lib and cuda_origin; prints one line.
setup() {
  local began=$SECONDS packages
  mkdir -p "$build_dir"
  packages=$(missing_packages)
  if [ -n "$packages" ]; then
    install_packages $packages
    packages=$(missing_packages | tr '\n' ' ')
    case " $packages" in
      *" cmake "*)
        die "CMake $oldest_cmake or newer is needed and this distribution has $(cmake --version | sed -n 1p): put a newer one first on PATH (pip install cmake) and run this again." ;;
      *[a-z]*)
        die "Still missing after installing: $packages" ;;
    esac
  fi
  packages=$(missing_choices)
  if [ -n "$packages" ]; then
    install_choices "$packages"
  fi
  if [ "${KERNELWRIGHT_HIDE_TOOLKIT:-0}" != 0 ]; then
    hide_toolkit
    use_wheels
    export KERNELWRIGHT_NVRTC=$cuda_lib  # the library would look in the usual places first
  else
    find_toolkit || use_wheels
  fi
  stage_done setup $((SECONDS - began)) "$cuda_origin"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  build_dir=$root/build
  while [ $# -gt 0 ]; do
    case $1 in
      --build-dir) build_dir=$(mkdir -p "$2" && cd "$2" && pwd) && shift 2 ;;
      --hide-toolkit) export KERNELWRIGHT_HIDE_TOOLKIT=1 && shift ;;
      --clang) with_clang=1 && shift ;;
      -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
      *) die "setup.sh: $1 is not an option here; see --help" ;;
    esac
  done
  setup
fi
