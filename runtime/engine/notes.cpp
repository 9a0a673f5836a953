#include "kernelwright/runtime/engine/notes.h"

#include "contract/attention_sm90.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/gemm/shared_map.h"

namespace kernelwright {
namespace {

constexpr std::uint32_t kWarpsOfAWarpgroup = 4;

}  // namespace

KernelNotes notes_of(const Spec& spec) {
  KernelNotes notes;
  std::uint32_t next_warp = 0;
  const auto role = [&](std::uint32_t num_warps, std::string name) {
    notes.roles.push_back({.first_warp = next_warp, .num_warps = num_warps, .name = std::move(name)});
    next_warp += num_warps;
  };
  const auto place = [&](std::vector<SharedRegion> regions) {
    for (SharedRegion& region : regions)
      notes.shared.push_back({.offset = region.offset,
                              .bytes = region.bytes,
                              .name = std::move(region.name),
                              .stage_bytes = region.stage_bytes});
  };
  if (const auto* gemm = std::get_if<GemmSpec>(&spec)) {
    if (gemm->family == Family::kBlackwell) {
      role(kWarpsOfAWarpgroup, "store");
      for (const char* name : {"mma", "load", "tiles", "scales"}) role(1, name);
    } else if (gemm->family == Family::kHopper) {
      role(kWarpsOfAWarpgroup, "load");
      for (int i = 0; i < gemm->math_warpgroups; ++i) role(kWarpsOfAWarpgroup, "math " + std::to_string(i));
    } else {
      role(static_cast<std::uint32_t>(gemm->num_warps), "math");
    }
    place(shared_map(*gemm));
    return notes;
  }
  const auto* attention = std::get_if<AttentionSpec>(&spec);
  if (!attention) return notes;  // attention_combine, quantize: warps alike, no dynamic shared memory
  switch (attention->form()) {
    case AttentionForm::kHopperPrefill:
      role(kWarpsOfAWarpgroup, "load");
      for (int i = 0; i < attention->math_warpgroups; ++i) role(kWarpsOfAWarpgroup, "math " + std::to_string(i));
      break;
    case AttentionForm::kBlackwellPrefill:
      role(kWarpsOfAWarpgroup, "softmax 0");
      role(kWarpsOfAWarpgroup, "softmax 1");
      role(kWarpsOfAWarpgroup, "correction");
      role(1, "mma");
      role(1, "load");
      if (contract::hopper_gathers_kv(attention->page_size)) {
        role(2, "gather");
      } else {
        role(1, "clean");
        role(1, attention->scheduler == Scheduler::kQueued  ? "load queries"
                : attention->scales == ScaleKind::kPerToken ? "load scales"
                                                            : "idle");
      }
      break;
    default:  // every warp loads, multiplies and stores
      role(static_cast<std::uint32_t>(attention->num_warps), "math");
  }
  place(shared_map(*attention));
  return notes;
}

}  // namespace kernelwright
