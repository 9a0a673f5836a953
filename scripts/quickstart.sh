#!/usr/bin/env bash
# From a bare Debian or Ubuntu machine to a verified kernel: sets the machine up, builds the command and the library, and runs
# a shipped config. The kernel is compiled, run and compared with the fp64 reference: on an NVIDIA GPU, else on the emulator,
# which also looks for races and missing fences, and the kernel is explained. A second run builds and compiles nothing anew.
#
#   scripts/quickstart.sh [CONFIG] [--device cuda|emulator] [--hide-toolkit] [--build-dir DIR]
#
#   CONFIG     configs/problems/llama3-8b-prefill.json unless named
#   --device   cuda: insist on the GPU; emulator: do not look for one
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

config=configs/problems/llama3-8b-prefill.json device=auto build_dir=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --device)
      case ${2:-} in cuda | emulator) device=$2 ;; *) die "quickstart.sh: --device takes cuda or emulator, not '${2:-}'" ;; esac
      shift 2 ;;
    --hide-toolkit) export KERNELWRIGHT_HIDE_TOOLKIT=1 && shift ;;
    --build-dir)
      [ $# -ge 2 ] || die "quickstart.sh: --build-dir needs a value; see --help"
      mkdir -p "$2" && build_dir=$(cd "$2" && pwd) && shift 2 ;;
    -*) die "quickstart.sh: $1 is not an option here; see --help" ;;
    *) config=$(realpath -m "$1") && shift ;;
  esac
done
if [ -z "$build_dir" ]; then
  build_dir=$root/build
  if [ "${KERNELWRIGHT_HIDE_TOOLKIT:-0}" != 0 ]; then build_dir=$root/build/wheels; fi
fi
cd "$root"
[ -f "$config" ] || die "There is no config at $config; the shipped ones are in configs/problems/"
logs=$build_dir/logs

title "Kernelwright: from a config to a verified kernel"
setup
stage configure "$logs/configure.log" cmake --preset release -B "$build_dir" "-DKERNELWRIGHT_CUDA_INCLUDE=$cuda_include"
stage build "$logs/build-package.log" cmake --build "$build_dir" --target kernelwright_package -j "$(nproc)"
command=$build_dir/cli/kernelwright
shown=${config#"$root"/}

# show <words...>: prints a command as the reader could type it, and then the command's own output.
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
  # 3: the machine lacks something that was not visible before, such as a new enough driver.
  if [ "$device" = cuda ] || [ "$status" -ne 3 ]; then
    die "kernelwright run ended with $status; '$command doctor' says what this machine has and lacks"
  fi
fi

note "no GPU that could be used: the emulator executes the kernel's PTX on the CPU"
began=$SECONDS
show run "$shown" --device emulator --hazards || die "kernelwright run ended with $?; '$command doctor' says what this machine has and lacks"
took=$((SECONDS - began))
show explain "$shown" --device emulator || die "kernelwright explain ended with $?"
title "${green}✓${plain}${bold} Compiled, run on the emulator without a hazard, and equal to the fp64 reference, in $took s"
note "next: ${command#"$root"/} compile $shown makes cubins for four architectures; on a machine with a GPU, run and bench use it"
