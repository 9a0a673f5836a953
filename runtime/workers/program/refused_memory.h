/// Whether the system refused memory to this process. NVRTC does not tell: after an allocation that fails, it may
/// report a rejected source, or that its own PTX is wrong. So kernelwright-cc watches the functions by which NVRTC
/// allocates.
#pragma once

#include <cstdint>

namespace kernelwright {

/// The size of the first allocation that was refused in this process; 0: none was. A worker ends after a compile that
/// failed without enough memory, so there is nothing to reset. Built with a sanitizer, this is always 0.
std::uint64_t refused_bytes();

}  // namespace kernelwright
