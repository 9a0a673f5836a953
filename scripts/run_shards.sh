#!/usr/bin/env bash
# Runs gtest binaries in shards, many at a time, as a machine of many cores does with the suite under sanitizers. Each shard
# has a log of its own; what failed is named at the end, with "N passed, N failed, N skipped" over all.
#
#   scripts/run_shards.sh [--jobs N] [--shards N] [--logs DIR] [--filter GTEST_FILTER] BINARY...
set -euo pipefail
jobs=$(nproc) shards='' logs=shard-logs filter='*'
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --jobs) jobs=$2 && shift 2 ;;
    --shards) shards=$2 && shift 2 ;;
    --logs) logs=$2 && shift 2 ;;
    --filter) filter=$2 && shift 2 ;;
    -*) echo "run_shards.sh: $1 is not an option here; see --help" >&2 && exit 1 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { echo "run_shards.sh: name a test binary; see --help" >&2 && exit 1; }
shards=${shards:-$((2 * jobs))}
mkdir -p "$logs"
# detect_stack_use_after_return: see test.sh.
export ASAN_OPTIONS=${ASAN_OPTIONS:-protect_shadow_gap=0:detect_stack_use_after_return=0} UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1} filter logs shards

run_shard() {
  local binary=$1 index=$2 log code=0
  log=$logs/$(basename "$binary").$index.log
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$index "$binary" --gtest_filter="$filter" >"$log" 2>&1 </dev/null || code=$?
  if [ "$code" -ne 0 ]; then echo "$log: exit $code"; fi
}
export -f run_shard
began=$SECONDS
for binary in "$@"; do
  for ((index = 0; index < shards; ++index)); do printf '%s\0%s\0' "$binary" "$index"; done
done | xargs -0 -n 2 -P "$jobs" bash -c 'run_shard "$1" "$2"' _ | tee "$logs/failed.txt"

# of <pattern>: the sum of the numbers after the pattern in gtest's summaries.
of() { cat "$logs"/*.log | sed -n "s/^\[  $1 *\] \([0-9]*\) tests\{0,1\}.*/\1/p" | awk '{sum += $1} END {print sum + 0}'; }
echo "$(of PASSED) passed, $(of FAILED) failed, $(of SKIPPED) skipped, $(wc -l <"$logs/failed.txt") shards ended in an error; $((SECONDS - began)) s"
[ ! -s "$logs/failed.txt" ]
