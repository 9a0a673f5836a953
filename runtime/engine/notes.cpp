#include "kernelwright/runtime/engine/notes.h"

#include "kernelwright/generator/kernels.h"

namespace kernelwright {

KernelNotes notes_of(const Spec& spec) {
  KernelNotes notes;
  std::uint32_t next_warp = 0;
  for (KernelRole& role : roles(spec)) {
    const auto warps = static_cast<std::uint32_t>(role.num_warps);
    notes.roles.push_back({.first_warp = next_warp, .num_warps = warps, .name = std::move(role.name)});
    next_warp += warps;
  }
  for (SharedRegion& region : shared_map(spec))
    notes.shared.push_back({.offset = region.offset,
                            .bytes = region.bytes,
                            .name = std::move(region.name),
                            .stage_bytes = region.stage_bytes});
  return notes;
}

}  // namespace kernelwright
