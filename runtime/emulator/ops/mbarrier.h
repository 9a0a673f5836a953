/// The operations on mbarriers that several instruction families share. They tell the checker and the timeline.
///
/// Each throws Fault, with the word's state, if the word is no mbarrier or a count leaves its range. The ranges: no
/// more arrivals than the phase expects, and a transaction count of at most 2^20 - 1.
#pragma once

#include <cstdint>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/mbarrier.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/warp.h"

namespace kernelwright::emulator {

void mbarrier_init(Warp& warp, int lane, const SharedPlace& at, std::uint32_t count);
void mbarrier_invalidate(Warp& warp, int lane, const SharedPlace& at);
struct ArriveOptions {
  bool release = true;         // .relaxed: waiting threads do not learn what the lane did before
  bool drop = false;           // arrive_drop: later phases expect `count` fewer arrivals
  bool noncompleting = false;  // .noComplete: a fault if the phase would complete
};
/// arrive by a lane, after adding `expect_bytes` to the bytes that the phase waits for. Returns the state before, as a
/// token.
std::uint64_t mbarrier_arrive(Warp& warp, int lane, const SharedPlace& at, std::uint32_t count,
                              std::uint32_t expect_bytes, ArriveOptions options = {});
void mbarrier_expect_bytes(Warp& warp, int lane, const SharedPlace& at, std::uint32_t bytes);
/// cp.async.mbarrier.arrive: the current phase expects one more arrival, which comes with the copies.
void mbarrier_expect_arrival(Warp& warp, int lane, const SharedPlace& at);
/// Called by an asynchronous operation when it is performed: bytes that have landed, or an arrival.
void mbarrier_complete_bytes(Cta& cta, std::uint32_t offset, std::uint32_t bytes);
void mbarrier_arrive_async(Cta& cta, std::uint32_t offset);

}  // namespace kernelwright::emulator
