#!/usr/bin/env bash
# How many synchronisation bugs does the emulator's checker find? Deletes or alters each synchronisation instruction of
# our kernels, one at a time, and runs the emulator. Prints the score and what was not found; the same as Markdown, and
# a line for each mutant as CSV, go to build/mutation/.
#
#   scripts/mutate.sh [--kernel PART_OF_NAME] [--jobs N] [--minimum PERCENT] [--launches FILE]
#
# --launches: instead of our kernels, those PTX files that FILE describes. Beside it, mutants_equivalent.txt has the
# mutants that change nothing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

kernel='' launches='' minimum=95 jobs=$(nproc) build_dir=$root/build
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --kernel | --jobs | --minimum | --launches) [ $# -ge 2 ] || die "mutate.sh: $1 needs a value; see --help" ;;
    *) die "mutate.sh: $1 is not an option here; see --help" ;;
  esac
  case $1 in --kernel) kernel=$2 ;; --jobs) jobs=$2 ;; --minimum) minimum=$2 ;; --launches) launches=$2 ;; esac
  shift 2
done
logs=$build_dir/logs

title "Kernelwright: mutation score of the hazard checks"
setup
stage configure "$logs/configure.log" cmake --preset release "-DKERNELWRIGHT_CUDA_INCLUDE=$cuda_include"
stage build "$logs/build.log" cmake --build "$build_dir" --target kernelwright_mutate -j "$jobs"
mkdir -p "$build_dir/mutation"
equivalents=tests/runtime/emulator/mutation/mutants_equivalent.txt
[ -z "$launches" ] || equivalents=$(dirname "$launches")/mutants_equivalent.txt
nice "$build_dir/tests/kernelwright_mutate" --kernel "$kernel" --jobs "$jobs" --minimum "$minimum" \
  ${launches:+--launches "$launches"} --equivalents "$equivalents" \
  --markdown "$build_dir/mutation/score.md" --csv "$build_dir/mutation/mutants.csv"
