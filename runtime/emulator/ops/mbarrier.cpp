#include "kernelwright/runtime/emulator/ops/mbarrier.h"

#include <fmt/format.h>

#include <cstring>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {
namespace {

/// Begins the next phase if nothing is missing in this one, and stores the state.
void settle(Cta& cta, std::uint32_t offset, MbarrierState& state) {
  const bool completes = state.pending == 0 && state.missing_bytes == 0;
  if (completes) {
    state.pending = state.expected;
    state.parity ^= 1;
  }
  store_mbarrier(cta, offset, state);
  if (completes && cta.cluster->hazards) cta.cluster->hazards->mbarrier_complete(cta, offset);
  if (completes && cta.cluster->timeline) cta.cluster->timeline->complete(mbarrier_at(cta, offset));
}

void add_bytes(const Cta& cta, std::uint32_t offset, MbarrierState& state, std::int64_t bytes) {
  const std::int64_t sum = state.missing_bytes + bytes;
  if (sum > kMostMissingBytes || sum < -kMostMissingBytes)
    throw Fault(fmt::format("{}: its transaction count would become {}, and it ranges from {} to {}",
                            name_of_mbarrier(cta, offset), sum, -kMostMissingBytes, kMostMissingBytes),
                HazardKind::kMbarrier);
  state.missing_bytes = static_cast<std::int32_t>(sum);
}

void take_arrivals(const Cta& cta, std::uint32_t offset, MbarrierState& state, std::uint32_t count) {
  if (count == 0)
    throw Fault(fmt::format("{}: an arrival with count 0; counts begin at 1", name_of_mbarrier(cta, offset)),
                HazardKind::kMbarrier);
  if (count > state.pending)
    throw Fault(fmt::format("{}: {} more {} arrived, and its phase (parity {}) was missing {} of {}",
                            name_of_mbarrier(cta, offset), count, count == 1 ? "has" : "have", state.parity,
                            state.pending, state.expected),
                HazardKind::kMbarrier);
  state.pending -= count;
}

}  // namespace

void mbarrier_init(Warp& warp, int lane, const SharedPlace& at, std::uint32_t count) {
  if (count == 0 || count > kMostArrivals)
    throw Fault(fmt::format("mbarrier.init at shared {} with count {}, which is outside [1, {}]", at.offset, count,
                            kMostArrivals),
                HazardKind::kMbarrier);
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->mbarrier_init(warp, lane, *at.cta, at.offset);
  if (Timeline* timeline = warp.cta->cluster->timeline) timeline->reset(mbarrier_at(*at.cta, at.offset));
  store_mbarrier(*at.cta, at.offset, {.pending = count, .expected = count});
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
  const std::uint64_t token = mbarrier_word(state);
  add_bytes(cta, at.offset, state, expect_bytes);
  take_arrivals(cta, at.offset, state, count);
  if (options.noncompleting && state.pending == 0)
    throw Fault(
        fmt::format("{}: mbarrier.arrive.noComplete would complete its phase", name_of_mbarrier(cta, at.offset)),
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
  if (state.pending == kMostArrivals)
    throw Fault(fmt::format("{}: its phase would expect more than {} arrivals", name_of_mbarrier(*at.cta, at.offset),
                            kMostArrivals),
                HazardKind::kMbarrier);
  ++state.pending;
  store_mbarrier(*at.cta, at.offset, state);
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

}  // namespace kernelwright::emulator
