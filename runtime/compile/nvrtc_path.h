/// Where NVRTC is on this machine: found by looking at names, without opening it. docs/cache.md says why a hit must not
/// load it.
#pragma once

#include <optional>
#include <string>

namespace kernelwright {

/// The path of libnvrtc, or nothing. In order: $KERNELWRIGHT_NVRTC (the file, taken as named so that an error can name
/// it; or a folder that has it, wheel layouts included; where it is set nothing else is tried), $CUDA_HOME, then
/// libnvrtc.so.13 and after it libnvrtc.so.12 in the usual places, in folders beside this library and program, and in
/// $LD_LIBRARY_PATH. Reads the environment anew each time. Never the "alt" library: it compiles for another data model.
std::optional<std::string> find_nvrtc();

/// The folders that find_nvrtc() looks into now, in its order and separated by commas, for an error that says so; or
/// the file that $KERNELWRIGHT_NVRTC names.
std::string nvrtc_places();

}  // namespace kernelwright
