/// File-system steps that the cache and its locks share: those of generator/trusted_files.h, and writing.
#pragma once

#include <cstddef>
#include <span>

#include "kernelwright/generator/trusted_files.h"

namespace kernelwright {

/// Writes all of `bytes`. Returns 0, or errno's number.
int write_all(int fd, std::span<const std::byte> bytes);

}  // namespace kernelwright
