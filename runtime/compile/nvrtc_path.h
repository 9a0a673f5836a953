/// Where NVRTC is on this machine. The code finds it by names, without opening it: docs/cache.md says why a hit must
/// not load it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kernelwright {

/// The path of libnvrtc, or nothing. First it tries $KERNELWRIGHT_NVRTC; if that is set, nothing else is tried. It is a
/// file, taken as named so that an error can name it, or a folder that has the file, wheel layouts included. Then come
/// $CUDA_HOME, and NVRTC's wheel beside the Python package that this library or program is in. Then come the usual
/// places, folders beside this library and program, and $LD_LIBRARY_PATH. Within each of these three, libnvrtc.so.13
/// comes before libnvrtc.so.12. Each call reads the environment anew. The "alt" library is never taken, because it
/// compiles for another data model. A libnvrtc.so.12 of a wheel that is older than 12.8 is passed over: another package
/// brought it.
std::optional<std::string> find_nvrtc();

/// The same for a program and a library in these folders.
std::optional<std::string> find_nvrtc(const std::vector<std::string>& own_folders);

/// The folders that find_nvrtc() looks into now, in its order and separated by commas, for an error message. Or the
/// file that $KERNELWRIGHT_NVRTC names.
std::string nvrtc_places();

/// The folders of the program, and of the library that this code was linked into.
std::vector<std::string> own_folders();

}  // namespace kernelwright
