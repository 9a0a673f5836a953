# A machine that never had a CUDA toolkit, for bare.sh and wheel.sh: an empty environment, and a mount namespace in which the
# toolkit's folders are empty and the loader's cache knows no NVRTC. Sourced, with root and work set.
. "$root/scripts/terminal.sh"
PATH=$PATH:/usr/sbin:/sbin  # ldconfig

cannot() {
  [ "${CI:-}" != true ] || die "${0##*/}: $1. With CI=true this check is not skipped: $2"
  echo "skipped: $1; $2"
  exit 77
}

# run <words...>: in an empty environment. The output goes to $work/said.txt; a failure shows it.
run() {
  local status=0
  env -i "$@" >"$work/said.txt" 2>&1 </dev/null || status=$?
  [ "$status" -eq 0 ] || { tail -n 40 "$work/said.txt" && die "$* ended with $status"; }
}
says() { grep -qE -- "$1" "$work/said.txt" || { tail -n 40 "$work/said.txt" && die "it should have said: $1"; }; }

# No toolkit by its folder, by a distribution's package or by the loader's cache.
hide_toolkit() {
  local place
  mkdir -p "$work/empty"
  for place in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda* /opt/cuda* /usr/lib/cuda; do
    if [ -n "$place" ] && [ -d "$place" ]; then
      mount --bind "$work/empty" "$(realpath "$place")"
    fi
  done
  for place in $(ldconfig -p | sed -n 's/.*libnvrtc.* => //p'); do
    if [ -e "$place" ]; then mount --bind /dev/null "$(realpath "$place")"; fi
  done
  ldconfig -C "$work/ld.so.cache"
  mount --bind "$work/ld.so.cache" /etc/ld.so.cache
  ! ldconfig -p | grep libnvrtc || die "the loader still knows an NVRTC"
  # The person's kernels would hide that none can be compiled.
  mkdir -p ~/.cache && mount -t tmpfs tmpfs ~/.cache
}

# enter_namespace <command...>: becomes the command in a namespace of its own, in which it may mount over $work.
enter_namespace() {
  local namespace
  mkdir -p "$work"
  for namespace in "unshare --mount" "unshare --map-root-user --mount"; do
    if $namespace mount -t tmpfs tmpfs "$work" 2>"$work/refused.txt"; then
      exec $namespace "$@"
    fi
  done
  cannot "this user may not mount in a namespace ($(tail -n 1 "$work/refused.txt"))" "run it as root, in a container with CAP_SYS_ADMIN"
}
