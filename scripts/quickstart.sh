#!/usr/bin/env bash
# From a bare Debian or Ubuntu machine to a verified kernel: sets the machine up, builds the command, and runs it on a
# shipped config. With an NVIDIA GPU the kernel is run and compared with the fp64 reference; without one it is compiled for
# four architectures, each cache entry is verified, and one is explained. A second run builds and compiles nothing anew.
#
#   scripts/quickstart.sh [CONFIG] [--device cuda|none] [--hide-toolkit]
#
#   CONFIG     configs/problems/llama3-8b-prefill.json unless named
#   --device   cuda: insist on the GPU; none: do not look for one
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

config=configs/problems/llama3-8b-prefill.json device=auto build_dir=$root/build
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --device)
      case ${2:-} in cuda | none) device=$2 ;; *) die "quickstart.sh: --device takes cuda or none, not '${2:-}'" ;; esac
      shift 2 ;;
    --hide-toolkit) export KERNELWRIGHT_HIDE_TOOLKIT=1 build_dir=$root/build/wheels && shift ;;
    -*) die "quickstart.sh: $1 is not an option here; see --help" ;;
    *) config=$(realpath -m "$1") && shift ;;
  esac
done
if [ "${KERNELWRIGHT_HIDE_TOOLKIT:-0}" != 0 ]; then build_dir=$root/build/wheels; fi
cd "$root"
[ -f "$config" ] || die "There is no config at $config; the shipped ones are in configs/problems/"
logs=$build_dir/logs

title "Kernelwright: from a config to a verified kernel"
setup
stage configure "$logs/configure.log" cmake --preset release -B "$build_dir" "-DKERNELWRIGHT_CUDA_INCLUDE=$cuda_include"
stage build "$logs/build-cli.log" cmake --build "$build_dir" --target kernelwright_cli -j "$(nproc)"
command=$build_dir/cli/kernelwright
shown=${config#"$root"/}

# show <words...>: what is being run, as the reader could type it, and then its own output.
show() {
  title "kernelwright $*"
  "$command" "$@" </dev/null
}

# True if the driver is installed and sees a GPU.
has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

status=0
if [ "$device" = cuda ] || { [ "$device" = auto ] && has_gpu; }; then
  show run "$shown" --device cuda || status=$?
  if [ "$status" -eq 0 ]; then
    title "${green}✓${plain}${bold} The kernel's result matches the fp64 reference"
    note "next: ${command#"$root"/} explain $shown"
    exit 0
  fi
  # 3: the machine lacks something after all, such as a driver that is new enough.
  if [ "$device" = cuda ] || [ "$status" -ne 3 ]; then
    die "kernelwright run ended with $status; '$command doctor' says what this machine has and lacks"
  fi
fi

note "no GPU that could be used: compiling for four architectures instead"
arches=(sm_80 sm_90a sm_100a sm_120a)
began=$SECONDS
show compile "$shown" "${arches[@]/#/--arch=}" || die "kernelwright compile ended with $?; '$command doctor' says what is missing"
took=$((SECONDS - began))
show cache verify || die "kernelwright cache verify ended with $?: an entry does not hold what its checksum says"
show explain "$shown" --arch sm_90a || die "kernelwright explain ended with $?"
title "${green}✓${plain}${bold} ${#arches[@]} architectures compiled in $took s, every cache entry verified"
note "next, on a machine with a GPU: ${command#"$root"/} run $shown"
