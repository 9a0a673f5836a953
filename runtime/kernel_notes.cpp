#include "kernelwright/runtime/kernel_notes.h"

#include "kernelwright/generator/shared_map.h"

namespace kernelwright {
namespace {

constexpr std::uint32_t kWarpsOfAWarpgroup = 4;

}  // namespace

KernelNotes notes_of(const Spec& spec) {
  KernelNotes notes;
  const auto* attention = std::get_if<AttentionSpec>(&spec);
  if (!attention) return notes;  // attention_combine: warps alike, no dynamic shared memory
  if (attention->has_warpgroups()) {
    notes.roles.push_back({.first_warp = 0, .num_warps = kWarpsOfAWarpgroup, .name = "load"});
    for (int i = 0; i < attention->math_warpgroups; ++i)
      notes.roles.push_back({.first_warp = static_cast<std::uint32_t>(i + 1) * kWarpsOfAWarpgroup,
                             .num_warps = kWarpsOfAWarpgroup,
                             .name = "math " + std::to_string(i)});
  } else {  // every warp loads, multiplies and stores
    notes.roles.push_back(
        {.first_warp = 0, .num_warps = static_cast<std::uint32_t>(attention->num_warps), .name = "math"});
  }
  for (SharedRegion& region : shared_map(*attention))
    notes.shared.push_back({.offset = region.offset,
                            .bytes = region.bytes,
                            .name = std::move(region.name),
                            .stage_bytes = region.stage_bytes});
  return notes;
}

}  // namespace kernelwright
