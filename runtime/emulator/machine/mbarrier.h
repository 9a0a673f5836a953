/// The mbarrier object (PTX ISA "mbarrier"): one 64-bit word of shared memory. ops/mbarrier.h has the operations on it.
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

inline constexpr std::uint32_t kMostArrivals = (1u << 20) - 1;
/// PTX ISA "mbarrier": the range of the tx-count is ±(2^20 - 1).
inline constexpr std::int32_t kMostMissingBytes = (1 << 20) - 1;

/// Throws Fault, with the word, if the word is no mbarrier.
MbarrierState mbarrier_state(const Cta& cta, std::uint32_t offset);

/// Whether the word is an mbarrier, so that mbarrier_state() does not throw.
bool holds_mbarrier(const Cta& cta, std::uint32_t offset);

/// The word of a state.
std::uint64_t mbarrier_word(const MbarrierState& state);
void store_mbarrier(Cta& cta, std::uint32_t offset, const MbarrierState& state);

/// "the mbarrier at shared 1040", and the CTA's rank if the cluster has several CTAs.
std::string name_of_mbarrier(const Cta& cta, std::uint32_t offset);

/// Whether the phase with `parity` has completed.
bool mbarrier_completed(const Cta& cta, std::uint32_t offset, std::uint32_t parity);
/// What a blocked try_wait waits for.
Wait wait_for_mbarrier(Cta& cta, std::uint32_t offset, std::uint32_t parity);

}  // namespace kernelwright::emulator
