#!/usr/bin/env bash
# Fails unless each BINARY would run on another Linux machine: it needs no shared library but glibc's, no glibc newer than
# 2.36, and holds no path into this repository or this user's home.
#
#   scripts/check_portable.sh BINARY...      scripts/check_portable.sh --self-test COMPILER
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
newest_glibc=2.36

# check <binary>: prints what is wrong with the binary; false if anything is.
check() {
  local binary=$1 foreign version paths wrong=0
  foreign=$(ldd "$binary" | awk '{print $1}' |
    grep -vE '^(linux-vdso\.so.*|(/.*/)?ld-linux.*|lib(c|m|dl|rt|pthread)\.so\.[0-9]+|statically)$' || true)
  if [ -n "$foreign" ]; then
    echo "$binary needs shared libraries besides glibc's: $(echo $foreign)"
    wrong=1
  fi
  version=$(LC_ALL=C objdump -T "$binary" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -n 1)
  if [ -n "$version" ] && [ "$(printf '%s\n' "$version" "$newest_glibc" | sort -V | tail -n 1)" != "$newest_glibc" ]; then
    echo "$binary needs glibc $version; $newest_glibc is the newest allowed"
    wrong=1
  fi
  paths=$(strings -a "$binary" | grep -F -e "$root" ${HOME:+-e "$HOME/"} | head -n 5 || true)
  if [ -n "$paths" ]; then
    echo "$binary holds paths of this machine:"$'\n'"$paths"
    wrong=1
  fi
  return $wrong
}

# refuses <what> <binary>: checks that a binary known to be bad is reported as bad.
refuses() {
  if check "$2" >/dev/null; then
    echo "the check let $1 through"
    exit 1
  fi
}

if [ "${1:-}" = --self-test ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  echo '#include <string>
        int main(int argc, char** argv) { return std::string(argv[0]).size() + argc > 100; }' >"$work/shared.cpp"
  "$2" "$work/shared.cpp" -o "$work/shared"
  refuses "a shared libstdc++" "$work/shared"
  echo "const char* volatile path = \"$root/templates\"; int main() { return path == nullptr; }" >"$work/path.cpp"
  "$2" "$work/path.cpp" -static-libstdc++ -static-libgcc -o "$work/path"
  refuses "a source path" "$work/path"
  sed -i 's|".*"|"templates"|' "$work/path.cpp"
  "$2" "$work/path.cpp" -static-libstdc++ -static-libgcc -s -o "$work/good"
  check "$work/good"
  exit 0
fi

status=0
for binary in "$@"; do
  if check "$binary"; then
    echo "$binary: $(($(stat -c %s "$binary") / 1024)) KiB, needs only glibc"
  else
    status=1
  fi
done
exit $status
