/// PTX that names source lines. It stands in for the PTX that the kernel was made from.
#pragma once

#include <string>
#include <string_view>

namespace kernelwright {

/// `ptx` without empty lines and without what -lineinfo adds (.loc, .file and the debug sections). Two texts with equal
/// results have the same instructions.
std::string without_lines(std::string_view ptx);

}  // namespace kernelwright
