#!/usr/bin/env bash
# Builds the targets of tests/fuzz/ with clang, AddressSanitizer and libFuzzer in build/fuzz and runs each for a while.
# What a target finds stays in build/fuzz/found/; what it learns, in build/fuzz/corpus/, so that the next run starts there.
#
#   scripts/fuzz.sh [--seconds N] [--target REGEX]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

seconds=60 wanted=. build_dir=$root/build/fuzz with_clang=1
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --seconds | --target) [ $# -ge 2 ] || die "fuzz.sh: $1 needs a value; see --help" ;;
    *) die "fuzz.sh: $1 is not an option here; see --help" ;;
  esac
  case $1 in --seconds) seconds=$2 ;; --target) wanted=$2 ;; esac
  shift 2
done
logs=$build_dir/logs

title "Kernelwright: fuzzing, $seconds s a target"
[ -e "$root/tests/fuzz/CMakeLists.txt" ] || die "There is no tests/fuzz/ yet, so there is nothing to fuzz"
setup
stage configure "$logs/configure.log" env CC=clang CXX=clang++ cmake -S . -B "$build_dir" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DKERNELWRIGHT_FUZZ=ON -DKERNELWRIGHT_BUILD_BENCHES=OFF -DKERNELWRIGHT_BUILD_EXAMPLES=OFF \
  "-DKERNELWRIGHT_CUDA_INCLUDE=$cuda_include"
stage build "$logs/build.log" cmake --build "$build_dir" --target tests/fuzz/all -j "$(nproc)"
targets=$(find "$build_dir/tests/fuzz" -maxdepth 1 -type f -perm -u+x -printf '%f\n' | sort)

status=0 ran=0
for target in $targets; do
  echo "$target" | grep -qE "$wanted" || continue
  mkdir -p "$build_dir/corpus/$target" "$build_dir/found"
  seeds=()
  case $target in config_fuzz) seeds=(configs/problems) ;; model_fuzz) seeds=(tests/golden/models) ;; esac
  if [ -d "tests/fuzz/corpus/${target%_fuzz}" ]; then seeds+=("tests/fuzz/corpus/${target%_fuzz}"); fi
  ran=$((ran + 1))
  stage "$target" "$logs/$target.log" "$build_dir/tests/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$build_dir/found/$target-" -print_final_stats=1 "$build_dir/corpus/$target" "${seeds[@]}" || status=1
done
[ "$ran" -gt 0 ] || die "No target of tests/fuzz/ matches $wanted; there are: $(echo $targets)"
exit $status
