#!/usr/bin/env bash
# What everyone sees first, as on a machine that never had a CUDA toolkit: `bare.sh PART BUILD WORK`, where setup.wheels has
# left the wheels in WORK/wheels. Everything runs in an empty environment and in a mount namespace in which the toolkit's
# folders are empty and the loader's cache knows no NVRTC; hiding by variables alone would leave both to the loader.
#
#   quickstart   scripts/quickstart.sh, on an overlay of this checkout: what was built is used, and nothing here changes
#   test         scripts/test.sh with a filter, likewise
#   installed    an installed copy, the copy moved elsewhere, NVRTC in a site-packages folder, the Python package, no NVRTC
#
# Needs the right to mount: root, or user namespaces. Where it is missing the check is skipped (77), and where CI=true, as
# .ci/run says, it fails: a first command that fails must never pass unseen.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/tests/setup/namespace.sh"

# The checkout with its build tree as it is, and every change to it in memory; the wheels where setup.sh would put them.
overlay_checkout() {
  mkdir -p "$work/over" && mount -t tmpfs tmpfs "$work/over" && mkdir "$work/over/changes" "$work/over/work"
  mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/over/changes,workdir=$work/over/work" "$root"
  cd "$root"
  [ -e "$build/cuda" ] || ln -s "$wheels/cuda" "$build/cuda"
}

check_quickstart() {
  overlay_checkout
  run "$root/scripts/quickstart.sh" "${build_option[@]}"
  says 'setup .*PyPI wheels, NVRTC 13'
  says '✓.*fp64 reference'
}

check_test() {
  overlay_checkout
  run "$root/scripts/test.sh" "${build_option[@]}" --filter '^/?CompilerOnEachArch\.|^CompilerTest\.GivesTheSameBytesInAnotherProcess'
  says 'setup .*PyPI wheels, NVRTC 13'
  says '^5 passed, 0 failed, 0 skipped$'
}

# compiles <variable=value...> <command...>: a kernel, with an empty cache.
compiles() {
  rm -rf "$work/cache"
  run "$@" compile "$root/configs/problems/llama3-8b-decode.json" --arch sm_90a --cache-dir "$work/cache"
  says '1 compiled'
}

check_installed() {
  rm -rf "$work/prefix" "$work/moved" "$work/site" "$work/cache"
  cmake --install "$build" --prefix "$work/prefix" >"$work/install.txt" 2>&1 || { tail -n 5 "$work/install.txt" && die "cmake --install failed"; }
  hide_toolkit
  if env -i "$work/prefix/bin/kernelwright" compile "$root/configs/problems/llama3-8b-decode.json" --arch sm_90a >"$work/said.txt" 2>&1; then
    die "a kernel was compiled without an NVRTC: the toolkit is not hidden"
  fi
  says "neither libnvrtc.so.13 nor libnvrtc.so.12 is in /usr/local/cuda/lib64, .*$work/prefix/cuda/lib"

  ln -s "$wheels/cuda" "$work/prefix/cuda"
  compiles "$work/prefix/bin/kernelwright"
  mv "$work/prefix" "$work/moved"
  compiles "$work/moved/bin/kernelwright"
  local module
  module=$(dirname "$(find "$work/moved" -path '*/python/kernelwright/__init__.py' -printf '%h\n')")
  run PYTHONPATH="$module" python3 -B -c '
import kernelwright
engine = kernelwright.Engine(backend="emulator", memory_only_cache=True)
kernel = engine.prepare({"problem": {"head_dim": {"qk": 64, "v": 64}, "heads": {"q": 1, "kv": 1}}})
print("compiled", engine.counters()["compiles"], kernelwright._library.find())'
  says "^compiled 1 $work/moved/"
  rm "$work/moved/cuda"
  mkdir -p "$work/site/nvidia" && ln -s "$wheels/cuda" "$work/site/nvidia/cu13"
  compiles KERNELWRIGHT_NVRTC="$work/site" "$work/moved/bin/kernelwright"
}

part=$1 build=$(realpath "$2") work=$(realpath "$3")/bare-$1 wheels=$(realpath "$3")/wheels
build_option=()
[ "$build" = "$root/build" ] || build_option=(--build-dir "$build")
if [ "${4:-}" != inside ]; then
  [ -e "$wheels/cuda/pins.txt" ] || cannot "there are no wheels in $wheels" "setup.wheels fetches them, and needs a network or \$PIP_FIND_LINKS"
  enter_namespace "$0" "$1" "$2" "$3" inside
fi
[ "$part" = installed ] || hide_toolkit
"check_$part"
echo "$part: as it should be, without a toolkit"
