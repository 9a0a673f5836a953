/// The regions of a kernel's dynamic shared memory and tensor memory, and the roles of its warps, for people. `explain`
/// prints them, and reports name places by them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kernelwright {

/// A named part of shared memory. Parts may overlap: a later part of a kernel's work reuses the memory of an earlier
/// one.
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
  std::vector<TensorMemoryRegion> regions;  // by column; a region that overlaps another one follows it
  int used = 0, allocated = 0;              // columns; 0: the kernel takes none
};
/// Warps with one job. They follow the warps of the role before.
struct KernelRole {
  int num_warps = 0;
  std::string name;
};

}  // namespace kernelwright
