#!/usr/bin/env bash
# What a person gets who installs the wheel, for instance with the extra cu13: `wheel.sh PART BUILD`, where scripts/wheel.sh has left the wheel
# in BUILD/wheel/out. The wheel is installed into a new venv with what pip brings. It is used in an empty environment and in
# the namespace of namespace.sh, on a machine without a toolkit.
#
#   cu13, cu12   with NVRTC of CUDA 13 or 12: import, doctor, run, and the tests of the Python module
#   configs13, configs12   every config of this checkout compiles with NVRTC of CUDA 13 or 12
#   none         without NVRTC: import and doctor, which says what to install
#   types        mypy, strict: the stubs, a program that uses them, and the stubs against the package
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
part=$1 build=$(realpath "$2")
work=$build/wheel/check-$part
venv=$work/venv site='' python=$work/venv/bin/python
. "$root/tests/setup/namespace.sh"

# install <package...>: a new venv with the wheel, and with what pip finds for the packages.
install() {
  rm -rf "$work" && mkdir -p "$work"
  python3 -m venv "$venv"
  "$python" -m pip --disable-pip-version-check install "$@" >"$work/pip.txt" 2>&1 || { tail -n 15 "$work/pip.txt" && die "pip could not install $*"; }
}

check_nvrtc() {  # <name of the library below site-packages>
  run "$python" -c 'import importlib.util, sys, kernelwright
print("version", kernelwright.__version__, kernelwright.version(), importlib.util.find_spec("torch"), "torch" in sys.modules)'
  says '^version ([0-9.]+) \1 None False$'
  run "$python" -m kernelwright doctor
  says "NVRTC .* at $site/$1"
  says "calls of handles take the extension $site/kernelwright/_fast.abi3.so"
  says 'no NVIDIA driver'
  cp "$work/said.txt" "$work/doctor.txt"
  # The script that pip writes is the command too.
  run "$venv/bin/kernelwright" run "$root/configs/problems/causal-d64.json" --device emulator --hazards
  says '✓ ok'
  cp "$work/said.txt" "$work/run.txt"
  local test
  for test in kernelwright_test fast_test fast_rules_test; do
    run HOME="$work" PATH="$PATH" "$python" -B "$root/tests/python/$test.py"
    says '^OK'
    says "^Ran [0-9]+ tests"
    cp "$work/said.txt" "$work/$test.txt"
  done
}

check_cu13() { check_nvrtc nvidia/cu13/lib/libnvrtc.so.13; }
check_cu12() { check_nvrtc nvidia/cuda_nvrtc/lib/libnvrtc.so.12; }

check_configs() {
  run "$python" -m kernelwright compile "$root/configs/problems" --cache-dir "$work/cache"
  says '[0-9]+ compiled'
  cp "$work/said.txt" "$work/configs.txt"
}

check_configs13() { check_configs; }
check_configs12() { check_configs; }

check_none() {
  local status=0
  run "$python" -c 'import kernelwright; print(kernelwright.fast_calls())'
  says "'fast': True"
  env -i "$python" -m kernelwright doctor >"$work/said.txt" 2>&1 </dev/null || status=$?
  [ "$status" -eq 3 ] || die "doctor ended with $status, and 3 is due where neither a GPU nor a compiler is"
  says 'beside the Python package: pip install nvidia-cuda-nvrtc'
}

check_types() {
  printf '[mypy]\n[mypy-kernelwright.*]\nignore_errors = True\n' >"$work/mypy.ini"
  # What the package makes by itself, and what only torch can import.
  printf '%s\n' 'kernelwright\.(Gemm)?(Kernel|Launch)\.__init__' 'kernelwright\.QuantizeKernel\.__init__' 'kernelwright\.Array\.__del__' \
    'kernelwright\.(torch|transformers)(\..*)?' 'kernelwright\.(_.*|libkernelwright_c)' >"$work/allowed.txt"
  # Apart from the package's own files, which have no types.
  mkdir -p "$work/stubs/kernelwright" && cp "$site"/kernelwright/*.pyi "$work/stubs/kernelwright/"
  cd "$work/stubs"
  run HOME="$work" "$python" -m mypy --strict kernelwright
  says '^Success: no issues found in 2 source files'
  run HOME="$work" "$python" -m mypy --strict "$root/tests/python/typed_use.py"
  says '^Success: no issues found'
  run HOME="$work" "$python" -m mypy.stubtest kernelwright --mypy-config-file "$work/mypy.ini" --allowlist "$work/allowed.txt" \
    --ignore-unused-allowlist
  says '^Success: no issues found'
}

if [ "${3:-}" != inside ]; then
  wheel=$(echo "$build"/wheel/out/kernelwright-*.whl)
  [ -f "$wheel" ] || die "there is no wheel in $build/wheel/out; scripts/wheel.sh builds one"
  case $part in
    cu13 | cu12) install "$wheel[$part]" ;;
    configs13 | configs12) install "$wheel[cu${part#configs}]" ;;
    none) install "$wheel" ;;
    types) install "$wheel" mypy==2.4.1 ;;
    *) die "wheel.sh: $part is no part; see the head of this file" ;;
  esac
  enter_namespace "$0" "$part" "$build" inside
fi
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
hide_toolkit
"check_$part"
echo "$part: as it should be, in an empty environment without a toolkit"
