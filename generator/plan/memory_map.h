/// What lies where in a kernel's dynamic shared memory and tensor memory, and what its warps do, for people: `explain`
/// prints it and reports name places by it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kernelwright {

/// A named part of shared memory. Parts may overlap: what comes later in a kernel's life takes the place of what was.
struct SharedRegion {
  std::string name;
  std::uint32_t offset = 0, bytes = 0;
  std::uint32_t stage_bytes = 0;  // 0: no stages; else stage i begins at offset + i * stage_bytes
  std::string use;                // its shape, and when it is used
};

/// A named part of tensor memory: columns of all 128 lanes, 32 bits each.
struct TensorMemoryRegion {
  std::string name;
  int column = 0, columns = 0;
  std::string use;
};
struct TensorMemoryMap {
  std::vector<TensorMemoryRegion> regions;  // by column; what lies over another region follows it
  int used = 0, allocated = 0;              // columns; 0: the kernel takes none
};
/// Warps that follow those of the role before, and do one thing.
struct KernelRole {
  int num_warps = 0;
  std::string name;
};

}  // namespace kernelwright
