#!/usr/bin/env bash
# Tries scripts/setup.sh: `check.sh toolkits WORK CXX` on made-up toolkits, `check.sh wheels WORK CXX` on the real wheels,
# with this machine's toolkit hidden. Exits 77, which ctest calls skipped, where pip can fetch nothing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
half=$1 work=$2/$1 cxx=$3
. "$root/scripts/setup.sh"

# expect <what> <found> <wanted>
expect() { [ "$2" = "$3" ] || die "$1: found '$2', wanted '$3'"; }

# fake_toolkit <folder> <nvrtc version> <header...>
fake_toolkit() {
  local home=$1 version=$2 header
  shift 2
  mkdir -p "$home/include" "$home/lib64"
  touch "$home/lib64/libnvrtc.so.${version%%.*}" "$home/lib64/libnvrtc-builtins.so.$version"
  for header in "$@"; do touch "$home/include/$header"; done
}

# With CUDA_HOME and no other place to look: what find_toolkit says of <folder>.
found_in() { (
  unset CUDA_PATH
  CUDA_HOME=$1
  cuda_include=none
  find_toolkit >"$work/said.txt" || true
  echo "$cuda_include"
); }

check_toolkits() {
  rm -rf "$work" && mkdir -p "$work"
  at_least 3.25.1 3.25 || die "3.25.1 is at least 3.25"
  at_least 13.0 12.8 || die "13.0 is at least 12.8"
  ! at_least 12.6 12.8 || die "12.6 is not at least 12.8"
  ! at_least 3.9 3.25 || die "3.9 is not at least 3.25"
  ! at_least '' 3.25 || die "nothing is not at least 3.25"

  fake_toolkit "$work/good" 12.9 cuda.h nvrtc.h
  expect "a toolkit with NVRTC 12.9" "$(found_in "$work/good")" "$work/good/include"
  fake_toolkit "$work/old" 12.6 cuda.h nvrtc.h
  [ "$(found_in "$work/old")" != "$work/old/include" ] || die "NVRTC 12.6 was taken for new enough"
  grep -q "$work/old/lib64 has NVRTC 12.6, older than 12.8" "$work/said.txt" || die "setup did not say why it passed 12.6 over"
  fake_toolkit "$work/headless" 13.0 nvrtc.h
  [ "$(found_in "$work/headless")" != "$work/headless/include" ] || die "a toolkit without cuda.h was taken"
  fake_toolkit "$work/partial" 13.0 cuda.h nvrtc.h
  rm "$work/partial/lib64/libnvrtc.so.13"
  [ "$(found_in "$work/partial")" != "$work/partial/include" ] || die "builtins without NVRTC were taken"

  # Hidden means hidden from every child: no variable and no PATH entry leads to a toolkit.
  (
    export CUDA_HOME=$work/good CUDA_PATH=$work/good LIBRARY_PATH=/usr/local/cuda/lib64/stubs PATH=$PATH:/opt/cuda-13/bin
    export LD_LIBRARY_PATH=/opt/mine:/usr/local/cuda/lib64
    hide_toolkit
    expect "CUDA_HOME when hidden" "${CUDA_HOME:-unset}${CUDA_PATH:-unset}${LIBRARY_PATH:-unset}" unsetunsetunset
    expect "LD_LIBRARY_PATH when hidden" "$LD_LIBRARY_PATH" /opt/mine
    case :$PATH: in *:/opt/cuda-13/bin:* | *:/usr/local/cuda/bin:*) die "PATH still leads to a toolkit: $PATH" ;; esac
  )
  echo "toolkits: all as it should be"
}

check_wheels() {
  mkdir -p "$work"
  local said
  said=$("$root/scripts/setup.sh" --hide-toolkit --build-dir "$work" 2>&1) || {
    echo "$said"
    grep -qiE 'no matching distribution|connection|resolve|timed out|offline|proxy' "$work/logs/wheels.log" || exit 1
    echo "skipped: pip can fetch nothing here"
    exit 77
  }
  local before
  before=$(stat -c %i.%Y "$work/cuda/pins.txt")
  said=$("$root/scripts/setup.sh" --hide-toolkit --build-dir "$work")
  expect "the stamp after a second run" "$(stat -c %i.%Y "$work/cuda/pins.txt")" "$before"
  case $said in *fetching*) die "a second run fetched the wheels again" ;; esac
  case $said in *"PyPI wheels, NVRTC 13"*) ;; *) die "setup did not say where NVRTC comes from: $said" ;; esac

  # Only -isystem leads to a CUDA header here, and only the argument to an NVRTC.
  cat >"$work/try.cpp" <<'CPP'
#include <cuda.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <cstdio>

int main(int, char** argv) {
  void* nvrtc = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!nvrtc) return std::puts(dlerror()), 1;
  auto create = reinterpret_cast<decltype(&nvrtcCreateProgram)>(dlsym(nvrtc, "nvrtcCreateProgram"));
  auto compile = reinterpret_cast<decltype(&nvrtcCompileProgram)>(dlsym(nvrtc, "nvrtcCompileProgram"));
  auto size_of = reinterpret_cast<decltype(&nvrtcGetCUBINSize)>(dlsym(nvrtc, "nvrtcGetCUBINSize"));
  nvrtcProgram program;
  const char* options[] = {"-arch=sm_100a"};
  size_t size = 0;
  if (create(&program, "extern \"C\" __global__ void f(int* p) { *p = 1; }", "f.cu", 0, nullptr, nullptr)) return 2;
  if (compile(program, 1, options) || size_of(program, &size) || size == 0) return 3;
  std::printf("headers %d, a cubin of %zu bytes\n", CUDA_VERSION, size);
}
CPP
  hide_toolkit
  "$cxx" -std=c++20 -isystem "$work/cuda/include" "$work/try.cpp" -o "$work/try" -ldl
  # The library opens the builtins beside NVRTC by their path (tests/setup/bare.sh); this little program leaves it to the loader.
  LD_LIBRARY_PATH=$work/cuda/lib "$work/try" "$work"/cuda/lib/libnvrtc.so.13
}

"check_$half"
