#!/usr/bin/env bash
# Sets the machine up, builds everything and runs every test. The last line is "N passed, N failed, N skipped", counted
# from ctest's own report; the exit status is 0 only if something ran and nothing failed.
#
#   scripts/test.sh [--filter REGEX] [--label REGEX] [--sanitize address,undefined|thread] [--fuzz SECONDS]
#                   [--sanitize-smoke] [--kill-loops N] [--hide-toolkit] [--wheel] [--build-dir DIR] [--jobs N]
#
#   --filter      only tests whose name matches         --label       only tests with such a label (generator, runtime, ...)
#   --sanitize    in a build folder of its own          --fuzz        each fuzz target that long as well (needs clang)
#   --sanitize-smoke  after the tests, the emulator's most exposed ones under address,undefined as well: a build of that
#                 binary in DIR/asan, where only the emulator and its tests are watched, and less than a minute of tests,
#                 which count like the others; none after --sanitize
#   --kill-loops  rounds of the kill -9 tests of the cache, instead of 200
#   --hide-toolkit  as on a machine without a CUDA toolkit: headers and NVRTC from PyPI, in build/wheels
#   --wheel       also builds the wheel (scripts/wheel.sh) and tests it in new venvs; with --label wheel, that alone
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

# The tests of kernelwright_emulator_tests that --sanitize-smoke runs: hostile PTX, addresses that a kernel computes,
# and work that continues after the instruction that started it.
smoke_filter='^(PtxParser|EmulatorBackendTest|EmulatorAtomic|EmulatorCopyAsync|Mbarrier|TensorMap|Wgmma|WgmmaOperand|Tcgen05.*|(Small|Tensor)/Hazard)\.'
smoke_filter+='|^Files/Conformance\..*/(bulk|tensor|mbarrier|matrix)_'

preset=ci build_dir='' fuzz_seconds=0 smoke=0 wheel=OFF jobs=$(nproc) select=() cmake_options=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --hide-toolkit) export KERNELWRIGHT_HIDE_TOOLKIT=1 && shift && continue ;;
    --sanitize-smoke) smoke=1 && shift && continue ;;
    --wheel) wheel=ON && shift && continue ;;
    --filter | --label | --sanitize | --fuzz | --kill-loops | --build-dir | --jobs)
      [ $# -ge 2 ] || die "test.sh: $1 needs a value; see --help" ;;
    *) die "test.sh: $1 is not an option here; see --help" ;;
  esac
  case $1 in
    --filter) select+=(-R "$2") ;;
    --label) select+=(-L "$2") ;;
    --sanitize)
      case $2 in
        thread) preset=tsan ;;
        address,undefined) preset=asan ;;
        *) die "test.sh: --sanitize takes address,undefined or thread, not $2" ;;
      esac ;;
    --fuzz) fuzz_seconds=$2 ;;
    --kill-loops) export KERNELWRIGHT_KILL_LOOPS=$2 ;;
    --build-dir) mkdir -p "$2" && build_dir=$(cd "$2" && pwd) ;;
    --jobs) jobs=$2 ;;
  esac
  shift 2
done
if [ -z "$build_dir" ]; then
  case $preset in ci) build_dir=$root/build ;; *) build_dir=$root/build/$preset ;; esac
  # Built beside the toolkit's build, not over it: the two would overwrite each other's configuration.
  if [ "${KERNELWRIGHT_HIDE_TOOLKIT:-0}" != 0 ]; then build_dir=$root/build/wheels${preset#ci}; fi
fi
logs=$build_dir/logs

title "Kernelwright: tests"
setup
cmake_options+=("-DKERNELWRIGHT_CUDA_INCLUDE=$cuda_include" "-DKERNELWRIGHT_TEST_WHEEL=$wheel")
# CI tests the backend in a real Triton Inference Server. A person's machine gets no server unasked: scripts/triton.sh asks.
if [ "${CI:-}" = true ] && [ "$preset" = ci ]; then
  cmake_options+=(-DKERNELWRIGHT_TRITON=ON)
  if [ -z "${KERNELWRIGHT_TRITON_SERVER:-}" ] && [ "$(uname -m)" = x86_64 ]; then
    mkdir -p "$logs"
    if (get_triton_server) >"$logs/triton-server.log" 2>&1 </dev/null; then
      export KERNELWRIGHT_TRITON_SERVER=$build_dir/$triton_server
    else
      note "no Triton Inference Server, so its tests are skipped; the log is $logs/triton-server.log"
    fi
  fi
fi
stage configure "$logs/configure.log" cmake --preset "$preset" -B "$build_dir" "${cmake_options[@]}"
stage build "$logs/build.log" cmake --build "$build_dir" -j "$jobs"

# Kernels that a test compiles go to a cache of this run, never to the user's own.
export KERNELWRIGHT_CACHE_DIR=$build_dir/test-cache
rm -rf "$KERNELWRIGHT_CACHE_DIR"
mkdir -m 700 "$KERNELWRIGHT_CACHE_DIR"
# detect_stack_use_after_return is off: in GCC 13 builds, the emulator's vectors of 64 bytes fault in the frames that
# this check puts on the heap (bench/results/tests/2026-11-22-h200-solid-ground.md).
export ASAN_OPTIONS=${ASAN_OPTIONS:-protect_shadow_gap=0:detect_stack_use_after_return=0} TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
total=0 passed=0 failed=0 skipped=0 status=0

# run_tests <stage> <build folder> <ctest option...>: runs the selected tests and adds up the results. The log and the
# report are $logs/<stage>s.{log,xml}. After a failure, shows it and sets status to 1.
run_tests() {
  local name=$1 folder=$2 began=$SECONDS code=0 log=$logs/${1// /-}s.log report=$logs/${1// /-}s.xml count seconds suite
  shift 2
  rm -f "$report"
  note "testing with $jobs jobs; the log is $log"
  (cd "$folder" && ctest -j "$jobs" --output-on-failure --no-tests=error --timeout 300 --output-junit "$report" "$@") \
    >"$log" 2>&1 </dev/null || code=$?
  if [ ! -s "$report" ]; then
    tail -n 20 "$log" >&2
    die "ctest wrote no report; the whole log is $log"
  fi
  if [ "$code" -ne 0 ]; then
    # Prints the output of each failed test, without the hundreds that passed; then ctest's list of failures.
    grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test +#[0-9]+: .* (Passed|\*\*\*Skipped) )' "$log" | tail -n 150 >&2
  fi

  # attribute <name>: the value in the report's one <testsuite>.
  attribute() { grep -o "[[:space:]]$1=\"[0-9]*\"" "$report" | sed -n 1p | tr -dc 0-9; }
  local ran failures left_out
  ran=$(attribute tests) failures=$(attribute failures)
  left_out=$(($(attribute skipped) + $(attribute disabled)))
  total=$((total + ran)) failed=$((failed + failures)) skipped=$((skipped + left_out))
  passed=$((total - failed - skipped))
  if [ "$code" -eq 0 ] && [ "$failures" -eq 0 ]; then
    stage_done "$name" $((SECONDS - began)) "$ran tests"
  else
    status=1
    stage_failed "$name" $((SECONDS - began))
  fi
  sed -n 's/.*Test *#[0-9]*: \([^ ]*\) .* \([0-9.]*\) sec.*/\2 \1/p' "$log" | sort -rn | sed -n 1,5p |
    while read -r seconds suite; do
      case $seconds in 0.*) ;; *) note "$(printf '%13.0f s  %s' "$seconds" "$suite")" ;; esac
    done
  if [ "$left_out" -gt 0 ]; then
    note "skipped, by suite:"
    sed -n 's/.*Test *#[0-9]*: \([^ ]*\) .*\*\*\*\(Skipped\|Not Run (Disabled)\).*/\1/p' "$log" | sed 's/[./].*//' | sort | uniq -c |
      while read -r count suite; do note "$(printf '%13s    %s' "$count" "$suite")"; done
  fi
}

run_tests test "$build_dir" "${select[@]}"

if [ "$smoke" -ne 0 ] && [ "$preset" = ci ]; then
  build_smoke() {
    cmake --preset asan -B "$build_dir/asan" "${cmake_options[@]}" \
      -DKERNELWRIGHT_SANITIZE_TARGETS="kernelwright_emulator;kernelwright_conformance_cases;kernelwright_test_headers;kernelwright_emulator_tests" &&
      cmake --build "$build_dir/asan" --target kernelwright_emulator_tests -j "$jobs"
  }
  if stage "asan build" "$logs/asan-build.log" build_smoke; then
    run_tests "asan test" "$build_dir/asan" -R "$smoke_filter"
  else
    failed=$((failed + 1))
  fi
fi

if [ "$fuzz_seconds" -gt 0 ]; then
  began=$SECONDS
  if "$root/scripts/fuzz.sh" --seconds "$fuzz_seconds"; then
    stage_done fuzz $((SECONDS - began))
  else
    status=1
    failed=$((failed + 1))
  fi
fi
if [ "$failed" -gt 0 ] || [ "$total" -eq 0 ]; then status=1; fi
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
exit "$status"
