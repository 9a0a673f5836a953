/// The mbarrier object (PTX ISA "mbarrier"): one 64-bit word of shared memory, and the operations that several
/// instruction families share.
///
/// The word, as this machine lays it out:
///   bits 0-19   pending arrivals
///   bits 20-39  expected arrivals
///   bits 40-61  transaction bytes still missing, biased by 2^21: they may go negative before expect_tx
///   bit 62      set, so that a word of zeros is no mbarrier
///   bit 63      phase parity
/// A phase completes when no arrival and no byte is missing. A word whose counts are impossible is no mbarrier either.
#pragma once

#include <cstdint>
#include <string>

#include "kernelwright/runtime/emulator/machine/cta.h"

namespace kernelwright::emulator {

struct MbarrierState {
  std::uint32_t pending = 0, expected = 0;
  std::int32_t missing_bytes = 0;
  std::uint32_t parity = 0;
};

/// Each throws Fault, with the word's state, if the word is no mbarrier or a count leaves its range: more arrivals than
/// the phase expects, or a transaction count beyond 2^20 - 1.
MbarrierState mbarrier_state(const Cta& cta, std::uint32_t offset);

/// Whether the word is an mbarrier, so that mbarrier_state() does not throw.
bool holds_mbarrier(const Cta& cta, std::uint32_t offset);

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

/// Whether the phase with `parity` has completed.
bool mbarrier_completed(const Cta& cta, std::uint32_t offset, std::uint32_t parity);
/// What a blocked try_wait waits for.
Wait wait_for_mbarrier(Cta& cta, std::uint32_t offset, std::uint32_t parity);

}  // namespace kernelwright::emulator
