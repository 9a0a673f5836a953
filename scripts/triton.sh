#!/usr/bin/env bash
# Builds the backend of Triton Inference Server, and tests it in a real server on the emulator. No GPU is needed.
#
#   scripts/triton.sh [--build-dir DIR] [--jobs N]
#
# The server comes from a pinned and hashed PyPI wheel (55 MB, x86-64, glibc 2.35 or newer), once, into DIR/triton-server. With
# KERNELWRIGHT_TRITON_SERVER, the executable that it names is taken instead.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"
build_dir=$root/build jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --build-dir | --jobs) [ $# -ge 2 ] || die "triton.sh: $1 needs a value; see --help" ;;
    *) die "triton.sh: $1 is not an option here; see --help" ;;
  esac
  case $1 in
    --build-dir) mkdir -p "$2" && build_dir=$(cd "$2" && pwd) ;;
    --jobs) jobs=$2 ;;
  esac
  shift 2
done
logs=$build_dir/logs

title "Kernelwright: Triton Inference Server"
setup
stage configure "$logs/triton-configure.log" cmake --preset ci -B "$build_dir" "-DKERNELWRIGHT_CUDA_INCLUDE=$cuda_include" -DKERNELWRIGHT_TRITON=ON
stage build "$logs/triton-build.log" cmake --build "$build_dir" --target triton_kernelwright -j "$jobs"
if [ -z "${KERNELWRIGHT_TRITON_SERVER:-}" ]; then
  stage server "$logs/triton-server.log" get_triton_server
  export KERNELWRIGHT_TRITON_SERVER=$build_dir/$triton_server
fi
stage test "$logs/triton-test.log" \
  env "KERNELWRIGHT_TRITON_BACKENDS=$build_dir/integrations/triton" "KERNELWRIGHT_NVRTC=$cuda_lib" \
  python3 -B tests/python/triton_test.py -v
note "$(grep '^Ran ' "$logs/triton-test.log")"
