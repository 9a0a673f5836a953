/// Shared by bulk copies and tensor copies: destinations in a cluster, and the signals of their completion.
#pragma once

#include <cstdint>
#include <utility>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/warp.h"

namespace kernelwright::emulator {

/// Throws Fault unless `value` is a multiple of `alignment`. `what` names the value: "the destination in shared
/// memory".
void require_multiple(const char* what, std::uint64_t value, std::uint32_t alignment);

/// The two ends of a copy that completes on an mbarrier.
struct SignalledPlace {
  SharedPlace to, mbarrier;
};
/// Resolves both ends and checks them. `reach` bytes from the destination on must exist; `reach` is a multiple of
/// `alignment`. Both ends are in one CTA, or for `pair` (cta_group::2) in one pair of CTAs.
SignalledPlace signalled_place(Warp& warp, std::uint64_t to, std::uint64_t mbarrier, std::uint64_t reach,
                               std::uint32_t alignment, bool pair = false);

/// Calls `body(cta)` for each CTA that `mask` names (.multicast::cluster). Throws Fault for a CTA that does not exist.
template <class Body>
void for_each_destination(Warp& warp, std::uint32_t mask, Body&& body);

/// Tells the checker about a write by a copy that `lane` issues now. The copy will complete on the mbarrier, in `cta`
/// or `signalled`.
void check_signalled_write(Warp& warp, int lane, Cta& cta, std::uint32_t offset, std::uint32_t mbarrier,
                           std::uint32_t bytes, Cta* signalled = nullptr);

/// Issues a copy out of shared memory. It belongs to the open bulk group of `lane`.
template <class Work>
void issue_in_bulk_group(Warp& warp, int lane, Work&& work) {
  AsyncQueue& async = warp.cta->cluster->async;
  if (async.performs_at_once()) {
    work();
    return;
  }
  async.issue(nullptr, [&warp, ticket = warp.bulk_groups.issue(lane), work = std::forward<Work>(work)] {
    work();
    warp.bulk_groups.reads_done(ticket);
    warp.bulk_groups.done(ticket);
  });
}

[[noreturn]] void fault_of_absent_cta(std::uint32_t rank, std::size_t size);

template <class Body>
void for_each_destination(Warp& warp, std::uint32_t mask, Body&& body) {
  const auto& ctas = warp.cta->cluster->ctas;
  for (; mask != 0; mask &= mask - 1) {
    const auto rank = static_cast<std::uint32_t>(__builtin_ctz(mask));
    if (rank >= ctas.size() || ctas[rank]->live_warps == 0) fault_of_absent_cta(rank, ctas.size());
    body(*ctas[rank]);
  }
}

}  // namespace kernelwright::emulator
