#!/usr/bin/env bash
# Formats every C++ and CUDA source that git knows with the repository's .clang-format; --check only says what differs.
#
#   scripts/format.sh [--check] [FILE...]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/scripts/terminal.sh"
cd "$root"

mode=-i
case ${1:-} in
  -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0" && exit 0 ;;
  --check) mode=--check && shift ;;
esac
command -v clang-format >/dev/null || die "clang-format is not installed; run: apt-get install clang-format"
# Golden files are the exact bytes that the generator emits.
if [ $# -eq 0 ]; then
  mapfile -t files < <(git ls-files -co --exclude-standard '*.h' '*.c' '*.cpp' '*.cuh' '*.cu' | grep -v '^tests/golden/')
  set -- "${files[@]}"
fi
if [ "$mode" = -i ]; then
  clang-format -i "$@"
  exit 0
fi
differing=0
for file in "$@"; do
  clang-format "$file" | cmp -s - "$file" && continue
  echo "$file"
  differing=$((differing + 1))
done
[ "$differing" -eq 0 ] || die "$differing of $# files are not formatted; run: scripts/format.sh"
echo "$# files are formatted"
