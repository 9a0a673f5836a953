#include "kernelwright/runtime/emulator/machine/mbarrier.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint64_t kCountMask = (1u << 20) - 1;
constexpr std::int32_t kBytesBias = 1 << 21;
constexpr std::int32_t kMaxBytes = (1 << 20) - 1;  // PTX ISA "mbarrier": the range of the tx-count is ±(2^20 - 1)
constexpr std::uint64_t kBytesMask = (1u << 22) - 1;
constexpr std::uint64_t kValidBit = 1ull << 62;

std::uint64_t pack(const MbarrierState& state) {
  return state.pending | static_cast<std::uint64_t>(state.expected) << 20 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(state.missing_bytes + kBytesBias)) << 40 | kValidBit |
         static_cast<std::uint64_t>(state.parity) << 63;
}

MbarrierState unpack(std::uint64_t word) {
  MbarrierState state;
  state.pending = static_cast<std::uint32_t>(word & kCountMask);
  state.expected = static_cast<std::uint32_t>(word >> 20 & kCountMask);
  state.missing_bytes = static_cast<std::int32_t>(word >> 40 & kBytesMask) - kBytesBias;
  state.parity = static_cast<std::uint32_t>(word >> 63);
  return state;
}

std::uint64_t load_word(const Cta& cta, std::uint32_t offset) {
  std::uint64_t word;
  std::memcpy(&word, cta.shared.data() + offset, sizeof word);
  return word;
}

void store(Cta& cta, std::uint32_t offset, const MbarrierState& state) {
  const std::uint64_t word = pack(state);
  std::memcpy(cta.shared.data() + offset, &word, sizeof word);
}

std::string name(const Cta& cta, std::uint32_t offset) {
  const bool alone = cta.cluster == nullptr || cta.cluster->ctas.size() <= 1;
  return alone ? fmt::format("the mbarrier at shared {}", offset)
               : fmt::format("the mbarrier at shared {} of the CTA of rank {}", offset, cta.rank);
}

/// Begins the next phase if nothing is missing in this one, and stores the state.
void settle(Cta& cta, std::uint32_t offset, MbarrierState& state) {
  const bool completes = state.pending == 0 && state.missing_bytes == 0;
  if (completes) {
    state.pending = state.expected;
    state.parity ^= 1;
  }
  store(cta, offset, state);
  if (completes && cta.cluster->hazards) cta.cluster->hazards->mbarrier_complete(cta, offset);
  if (completes && cta.cluster->timeline) cta.cluster->timeline->complete(mbarrier_at(cta, offset));
}

void add_bytes(const Cta& cta, std::uint32_t offset, MbarrierState& state, std::int64_t bytes) {
  const std::int64_t sum = state.missing_bytes + bytes;
  if (sum > kMaxBytes || sum < -kMaxBytes)
    throw Fault(fmt::format("{}: its transaction count would become {}, and it ranges from {} to {}", name(cta, offset),
                            sum, -kMaxBytes, kMaxBytes),
                HazardKind::kMbarrier);
  state.missing_bytes = static_cast<std::int32_t>(sum);
}

void take_arrivals(const Cta& cta, std::uint32_t offset, MbarrierState& state, std::uint32_t count) {
  if (count == 0)
    throw Fault(fmt::format("{}: an arrival with count 0; counts begin at 1", name(cta, offset)),
                HazardKind::kMbarrier);
  if (count > state.pending)
    throw Fault(fmt::format("{}: {} more {} arrived, and its phase (parity {}) was missing {} of {}", name(cta, offset),
                            count, count == 1 ? "has" : "have", state.parity, state.pending, state.expected),
                HazardKind::kMbarrier);
  state.pending -= count;
}

bool mbarrier_holds(const Warp&, const Wait& wait) {
  return mbarrier_completed(*wait.cta, wait.address, static_cast<std::uint32_t>(wait.value));
}

std::string describe_wait(const Warp&, const Wait& wait) {
  const MbarrierState state = mbarrier_state(*wait.cta, wait.address);
  return fmt::format("the phase with parity {} of {} ({} of {} arrivals and {} bytes missing)", wait.value & 1,
                     name(*wait.cta, wait.address), state.pending, state.expected, state.missing_bytes);
}

}  // namespace

MbarrierState mbarrier_state(const Cta& cta, std::uint32_t offset) {
  if (offset % 8 != 0 || offset < kSharedBase || offset + 8 > cta.shared.size())
    throw Fault(fmt::format("shared {} is no place for an mbarrier: {}", offset,
                            offset % 8 != 0 ? "it is not a multiple of 8" : "it is outside the CTA's shared memory"),
                HazardKind::kMbarrier);
  const std::uint64_t word = load_word(cta, offset);
  const MbarrierState state = unpack(word);
  const bool counts = std::abs(state.missing_bytes) <= kMaxBytes;
  if ((word & kValidBit) == 0 || !counts)
    throw Fault(fmt::format("there is no mbarrier at shared {} of the CTA of rank {}: it holds {:#018x}; was "
                            "mbarrier.init forgotten, or the barrier overwritten?",
                            offset, cta.rank, word),
                HazardKind::kMbarrier);
  return state;
}

bool holds_mbarrier(const Cta& cta, std::uint32_t offset) {
  return offset % 8 == 0 && offset >= kSharedBase && offset + 8 <= cta.shared.size() &&
         (load_word(cta, offset) & kValidBit) != 0;
}

void mbarrier_init(Warp& warp, int lane, const SharedPlace& at, std::uint32_t count) {
  if (count == 0 || count > kCountMask)
    throw Fault(
        fmt::format("mbarrier.init at shared {} with count {}, which is outside [1, {}]", at.offset, count, kCountMask),
        HazardKind::kMbarrier);
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->mbarrier_init(warp, lane, *at.cta, at.offset);
  if (Timeline* timeline = warp.cta->cluster->timeline) timeline->reset(mbarrier_at(*at.cta, at.offset));
  store(*at.cta, at.offset, {.pending = count, .expected = count});
}

void mbarrier_invalidate(Warp& warp, int lane, const SharedPlace& at) {
  mbarrier_state(*at.cta, at.offset);
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->mbarrier_invalidate(warp, lane, *at.cta, at.offset);
  const std::uint64_t nothing = 0;
  std::memcpy(at.host, &nothing, sizeof nothing);
}

std::uint64_t mbarrier_arrive(Warp& warp, int lane, const SharedPlace& at, std::uint32_t count,
                              std::uint32_t expect_bytes, ArriveOptions options) {
  Cta& cta = *at.cta;
  if (Hazards* hazards = warp.cta->cluster->hazards) {
    hazards->mbarrier_use(warp, lane, cta, at.offset, /*async=*/false);
    if (options.release) hazards->mbarrier_arrive(warp, lane, cta, at.offset);
  }
  if (Timeline* timeline = cta.cluster->timeline) timeline->arrive(warp, mbarrier_at(cta, at.offset));
  MbarrierState state = mbarrier_state(cta, at.offset);
  const std::uint64_t token = pack(state);
  add_bytes(cta, at.offset, state, expect_bytes);
  take_arrivals(cta, at.offset, state, count);
  if (options.noncompleting && state.pending == 0)
    throw Fault(fmt::format("{}: mbarrier.arrive.noComplete would complete its phase", name(cta, at.offset)),
                HazardKind::kMbarrier);
  // At least as many arrivals are expected as are still missing, so this cannot go below zero.
  if (options.drop) state.expected -= count;
  settle(cta, at.offset, state);
  return token;
}

void mbarrier_expect_bytes(Warp& warp, int lane, const SharedPlace& at, std::uint32_t bytes) {
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->mbarrier_use(warp, lane, *at.cta, at.offset, false);
  MbarrierState state = mbarrier_state(*at.cta, at.offset);
  add_bytes(*at.cta, at.offset, state, bytes);
  settle(*at.cta, at.offset, state);
}

void mbarrier_expect_arrival(Warp& warp, int lane, const SharedPlace& at) {
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->mbarrier_use(warp, lane, *at.cta, at.offset, false);
  MbarrierState state = mbarrier_state(*at.cta, at.offset);
  if (state.pending == kCountMask)
    throw Fault(fmt::format("{}: its phase would expect more than {} arrivals", name(*at.cta, at.offset), kCountMask),
                HazardKind::kMbarrier);
  ++state.pending;
  store(*at.cta, at.offset, state);
}

void mbarrier_complete_bytes(Cta& cta, std::uint32_t offset, std::uint32_t bytes) {
  MbarrierState state = mbarrier_state(cta, offset);
  add_bytes(cta, offset, state, -static_cast<std::int64_t>(bytes));
  settle(cta, offset, state);
}

void mbarrier_arrive_async(Cta& cta, std::uint32_t offset) {
  MbarrierState state = mbarrier_state(cta, offset);
  take_arrivals(cta, offset, state, 1);
  settle(cta, offset, state);
}

bool mbarrier_completed(const Cta& cta, std::uint32_t offset, std::uint32_t parity) {
  return mbarrier_state(cta, offset).parity != (parity & 1);
}

Wait wait_for_mbarrier(Cta& cta, std::uint32_t offset, std::uint32_t parity) {
  Wait wait;
  wait.holds = mbarrier_holds;
  wait.describe = describe_wait;
  wait.cta = &cta;
  wait.address = offset;
  wait.value = parity & 1;
  return wait;
}

}  // namespace kernelwright::emulator
