/// PTX that names source lines, as a stand-in for the PTX that a kernel is really made of.
#pragma once

#include <string>
#include <string_view>

namespace kernelwright {

/// `ptx` without what -lineinfo adds to it (.loc, .file and the debug sections), without empty lines: two texts with
/// equal results have the same instructions.
std::string without_lines(std::string_view ptx);

}  // namespace kernelwright
