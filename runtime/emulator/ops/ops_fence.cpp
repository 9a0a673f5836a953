/// Fences. This machine's memory is sequentially consistent, so only the checker uses them: a kernel that lacks a fence
/// still runs, and is reported.
#include <span>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/checker/tensor_map_shadow.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

Step run_nothing(Warp&, const Op&, LaneMask) { return Step::kNext; }

Step run_proxy_async(Warp& warp, const Op&, LaneMask lanes) {
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->fence_proxy_async(warp, lanes);
  return Step::kNext;
}

Step run_mbarrier_init(Warp& warp, const Op&, LaneMask lanes) {
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->fence_mbarrier_init(warp, lanes);
  return Step::kNext;
}

Step run_global(Warp& warp, const Op&, LaneMask lanes) {
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->fence_global(warp, lanes);
  return Step::kNext;
}

/// The scope that a fence of the tensormap proxy names.
FenceScope scope_of(const Decoder& decoder) {
  if (decoder.has("cta")) return FenceScope::kCta;
  return decoder.has("cluster") ? FenceScope::kCluster : FenceScope::kGpu;
}

Step run_tensormap_release(Warp& warp, const Op& op, LaneMask lanes) {
  if (Hazards* hazards = warp.cta->cluster->hazards)
    hazards->tensor_map_released(warp, lanes, static_cast<FenceScope>(op.imm));
  return Step::kNext;
}

Step run_tensormap_acquire(Warp& warp, const Op& op, LaneMask lanes) {
  Hazards* const hazards = warp.cta->cluster->hazards;
  if (!hazards) return Step::kNext;
  while (lanes != 0) {
    const std::uint64_t address = lane_address(warp, op, first_lane(lanes));
    LaneMask same = 0;
    for_each_lane(lanes, [&](int lane) {
      if (lane_address(warp, op, lane) == address) same |= LaneMask{1} << lane;
    });
    hazards->tensor_map_acquired(warp, same, address, static_cast<FenceScope>(op.imm));
    lanes &= ~same;
  }
  return Step::kNext;
}

template <Handler kRun>
void decode_plain(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.run = kRun;
}

/// Fences whose scope includes other clusters order the communication of clusters through global memory.
void decode_scoped(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  const bool within = decoder.has("cta") || decoder.has("cluster");
  if (!within) decoder.communicates();
  op.run = within ? run_nothing : run_global;
}

/// Tensor maps are read when a copy is issued, so a change to a map is visible at once. Only the checker asks for the
/// fences.
void decode_tensormap_release(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  decoder.communicates();
  op.imm = static_cast<std::uint64_t>(scope_of(decoder));
  op.run = run_tensormap_release;
}

void decode_tensormap_acquire(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  decoder.address(0, StateSpace::kGeneric, op);
  decoder.immediate(1, 128, 128);
  decoder.communicates();
  op.imm = static_cast<std::uint64_t>(scope_of(decoder));
  op.run = run_tensormap_acquire;
}

}  // namespace

std::span<const Form> fence_forms() {
  static constexpr Form kForms[] = {
      {"fence.proxy.async", decode_plain<run_proxy_async>},
      {"fence.proxy.async.(shared::cta|shared::cluster)", decode_plain<run_proxy_async>},
      {"fence.proxy.async.global", decode_plain<run_nothing>},
      {"fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", decode_plain<run_proxy_async>},
      {"fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster", decode_plain<run_nothing>},
      {"fence.acquire.sync_restrict::shared::cluster.cluster", decode_plain<run_nothing>},
      {"fence.release.sync_restrict::shared::cta.cluster", decode_plain<run_nothing>},
      {"fence.proxy.alias", decode_plain<run_nothing>},
      {"fence.proxy.tensormap::generic.release.(cta|cluster|gpu|sys)", decode_tensormap_release},
      {"fence.proxy.tensormap::generic.acquire.(cta|cluster|gpu|sys)", decode_tensormap_acquire},
      {"fence.mbarrier_init.release.cluster", decode_plain<run_mbarrier_init>},
      {"fence.(sc|acq_rel|acquire|release)?.(cta|cluster|gpu|sys)", decode_scoped},
      {"membar.(cta|gl|sys)", decode_scoped},
      {"membar.proxy.alias", decode_plain<run_nothing>},
      {"membar.proxy.async", decode_plain<run_proxy_async>},
      {"membar.proxy.async.(shared::cta|shared::cluster)", decode_plain<run_proxy_async>},
      {"membar.proxy.async.global", decode_plain<run_nothing>},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
