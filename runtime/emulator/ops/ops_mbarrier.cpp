/// mbarrier.*: what lanes do with mbarriers. Copies use ops/mbarrier.h directly.
#include <cstdint>
#include <span>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/ops/mbarrier.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {
namespace {

// Op::imm of this file's instructions.
enum Flag : std::uint64_t {
  kGenericAddress = 1,
  kRelaxed = 2,
  kDrop = 4,
  kNoComplete = 8,
  kParity = 16,
};

SharedPlace place(Warp& warp, const Op& op, int lane) {
  const std::uint64_t address = lane_address(warp, op, lane);
  if ((op.imm & kGenericAddress) == 0) return shared_place(warp, static_cast<std::uint32_t>(address), 8);
  const GenericPlace at = generic_place(warp, lane, address, 8, Access::kWrite);
  if (at.shared.cta == nullptr) throw Fault("the address of an mbarrier is not in shared memory");
  return at.shared;
}

Step run_init(Warp& warp, const Op& op, LaneMask lanes) {
  const auto* count = warp.lanes<std::uint32_t>(op.b);
  for_each_lane(lanes, [&](int lane) { mbarrier_init(warp, lane, place(warp, op, lane), count[lane]); });
  return Step::kNext;
}

Step run_inval(Warp& warp, const Op& op, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) { mbarrier_invalidate(warp, lane, place(warp, op, lane)); });
  return Step::kNext;
}

Step run_expect_tx(Warp& warp, const Op& op, LaneMask lanes) {
  const auto* bytes = warp.lanes<std::uint32_t>(op.b);
  for_each_lane(lanes, [&](int lane) { mbarrier_expect_bytes(warp, lane, place(warp, op, lane), bytes[lane]); });
  return Step::kNext;
}

Step run_complete_tx(Warp& warp, const Op& op, LaneMask lanes) {
  const auto* bytes = warp.lanes<std::uint32_t>(op.b);
  for_each_lane(lanes, [&](int lane) {
    const SharedPlace at = place(warp, op, lane);
    if (Hazards* hazards = warp.cta->cluster->hazards)
      hazards->mbarrier_use(warp, lane, *at.cta, at.offset, /*async=*/false);
    mbarrier_complete_bytes(*at.cta, at.offset, bytes[lane]);
  });
  return Step::kNext;
}

/// arrive and arrive_drop, with or without .expect_tx: b is the count, c the bytes.
Step run_arrive(Warp& warp, const Op& op, LaneMask lanes) {
  const ArriveOptions options{
      .release = (op.imm & kRelaxed) == 0, .drop = (op.imm & kDrop) != 0, .noncompleting = (op.imm & kNoComplete) != 0};
  const auto* count = warp.lanes<std::uint32_t>(op.b);
  const auto* bytes = op.c == kNoSlot ? nullptr : warp.lanes<std::uint32_t>(op.c);
  for_each_lane(lanes, [&](int lane) {
    const SharedPlace at = place(warp, op, lane);
    const std::uint64_t token = mbarrier_arrive(warp, lane, at, count[lane], bytes ? bytes[lane] : 0, options);
    if (op.d == kNoSlot) return;
    if (at.cta != warp.cta) throw Fault("an arrival on another CTA's mbarrier returns no state: its sink must be _");
    warp.lanes<std::uint64_t>(op.d)[lane] = token;
  });
  return Step::kNext;
}

std::uint32_t asked_parity(const Warp& warp, const Op& op, int lane) {
  if (op.imm & kParity) return warp.lanes<std::uint32_t>(op.b)[lane] & 1;
  return static_cast<std::uint32_t>(warp.lanes<std::uint64_t>(op.b)[lane] >> 63);  // parity in arrive's result
}

/// The lanes whose phase has completed.
LaneMask test(Warp& warp, const Op& op, LaneMask lanes) {
  Hazards* hazards = warp.cta->cluster->hazards;
  LaneMask completed = 0;
  for_each_lane(lanes, [&](int lane) {
    const SharedPlace at = place(warp, op, lane);
    const std::uint32_t parity = asked_parity(warp, op, lane);
    if (hazards) hazards->mbarrier_use(warp, lane, *at.cta, at.offset, /*async=*/false);
    if (!mbarrier_completed(*at.cta, at.offset, parity)) return;
    completed |= LaneMask{1} << lane;
    if (Timeline* timeline = warp.cta->cluster->timeline) timeline->observe(warp, mbarrier_at(*at.cta, at.offset));
    if (hazards && (op.imm & kRelaxed) == 0)
      hazards->mbarrier_observe(warp, LaneMask{1} << lane, *at.cta, at.offset, parity);
  });
  return completed;
}

Step run_test_wait(Warp& warp, const Op& op, LaneMask lanes) {
  const LaneMask completed = test(warp, op, lanes);
  if (op.d != kNoSlot) warp.set_predicate(op.d, completed, lanes);
  return completed == lanes ? Step::kNext : Step::kYield;
}

/// A wait by lanes for different mbarriers: `address` has the lanes, `value` the Op. The lanes' registers do not change
/// during the wait.
bool any_lane_holds(const Warp& warp, const Wait& wait) {
  const Op& op = *reinterpret_cast<const Op*>(wait.value);
  bool any = false;
  for_each_lane(wait.address, [&](int lane) {
    const SharedPlace at = place(const_cast<Warp&>(warp), op, lane);
    any = any || mbarrier_completed(*at.cta, at.offset, asked_parity(warp, op, lane));
  });
  return any;
}

std::string describe_lanes(const Warp& warp, const Wait& wait) {
  const Op& op = *reinterpret_cast<const Op*>(wait.value);
  std::string text;
  for_each_lane(wait.address, [&](int lane) {
    const SharedPlace at = place(const_cast<Warp&>(warp), op, lane);
    const Wait one = wait_for_mbarrier(*at.cta, at.offset, asked_parity(warp, op, lane));
    const std::string what = one.describe(warp, one);
    if (text.find(what) == std::string::npos) text += (text.empty() ? "" : ", or ") + what;
  });
  return text;
}

/// Waits until the phase of at least one lane has completed. The other lanes then get false, as on hardware after the
/// time limit, and their own loop waits again.
Step run_try_wait(Warp& warp, const Op& op, LaneMask lanes) {
  const LaneMask completed = test(warp, op, lanes);
  if (completed != 0) {
    if (op.d != kNoSlot) warp.set_predicate(op.d, completed, lanes);
    return Step::kNext;
  }
  const int first = first_lane(lanes);
  const SharedPlace at = place(warp, op, first);
  const std::uint32_t parity = asked_parity(warp, op, first);
  bool same = true;
  for_each_lane(lanes, [&](int lane) {
    const SharedPlace other = place(warp, op, lane);
    same = same && other.host == at.host && asked_parity(warp, op, lane) == parity;
  });
  warp.wait = wait_for_mbarrier(*at.cta, at.offset, parity);
  if (!same) {
    warp.wait.holds = any_lane_holds;
    warp.wait.describe = describe_lanes;
    warp.wait.address = lanes;
    warp.wait.value = reinterpret_cast<std::uintptr_t>(&op);
  }
  return Step::kWait;
}

Step run_pending_count(Warp& warp, const Op& op, LaneMask lanes) {
  const auto* state = warp.lanes<std::uint64_t>(op.a);
  assign_lanes(warp.lanes<std::uint32_t>(op.d), lanes,
               [&](int lane) { return static_cast<std::uint32_t>(state[lane] & ((1u << 20) - 1)); });
  return Step::kNext;
}

/// The address, and the flags that the choices set. A choice that is absent is "".
void decode_common(Decoder& decoder, Op& op, std::size_t address_operand) {
  bool generic = true;
  for (const std::string_view space : {"shared", "shared::cta", "shared::cluster"})
    generic = generic && !decoder.has(space);
  if (generic) op.imm |= kGenericAddress;
  if (decoder.has("relaxed")) op.imm |= kRelaxed;
  decoder.address(address_operand, generic ? StateSpace::kGeneric : StateSpace::kShared, op);
}

void decode_init(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  decode_common(decoder, op, 0);
  op.b = decoder.source(1, RegisterClass::k32);
  op.run = run_init;
}

void decode_inval(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  decode_common(decoder, op, 0);
  op.run = run_inval;
}

template <Handler kRun>
void decode_bytes(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  decode_common(decoder, op, 0);
  op.b = decoder.source(1, RegisterClass::k32);
  op.run = kRun;
}

template <bool kDrops>
void decode_arrive(Decoder& decoder, Op& op) {
  const bool no_complete = decoder.has("noComplete"), expect = decoder.has("expect_tx");
  decoder.expect_operands(expect || no_complete ? 3 : 2, 3);
  decode_common(decoder, op, 1);
  if (kDrops) op.imm |= kDrop;
  if (no_complete) op.imm |= kNoComplete;
  op.d = decoder.destination(0, RegisterClass::k64);
  if (op.d != kNoSlot && decoder.has("shared::cluster"))
    decoder.refuse("an arrival on shared::cluster returns no state; its first operand must be _");
  const bool counts = decoder.num_operands() == 3 && !expect;
  op.b = counts ? decoder.source(2, RegisterClass::k32) : decoder.constant(1, RegisterClass::k32);
  if (expect) op.c = decoder.source(2, RegisterClass::k32);
  op.run = run_arrive;
}

/// test_wait and try_wait. The fourth operand of try_wait, a time in nanoseconds, only limits a wait that may end early
/// anyway.
template <Handler kRun>
void decode_wait(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, kRun == run_try_wait ? 4 : 3);
  decode_common(decoder, op, 1);
  op.d = decoder.destination(0, RegisterClass::kPredicate);
  if (decoder.has("parity")) {
    op.imm |= kParity;
    op.b = decoder.source(2, RegisterClass::k32);
  } else {
    op.b = decoder.source(2, RegisterClass::k64);
  }
  if (decoder.num_operands() == 4) decoder.source(3, RegisterClass::k32);
  op.run = kRun;
}

void decode_pending_count(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = decoder.destination(0, RegisterClass::k32);
  op.a = decoder.source(1, RegisterClass::k64);
  op.run = run_pending_count;
}

}  // namespace

std::span<const Form> mbarrier_forms() {
  static constexpr Form kForms[] = {
      {"mbarrier.init.(shared|shared::cta)?.b64", decode_init},
      {"mbarrier.inval.(shared|shared::cta)?.b64", decode_inval},
      {"mbarrier.expect_tx.(relaxed)?.(cta|cluster)?.(shared|shared::cta|shared::cluster)?.b64",
       decode_bytes<run_expect_tx>},
      {"mbarrier.complete_tx.(relaxed)?.(cta|cluster)?.(shared|shared::cta|shared::cluster)?.b64",
       decode_bytes<run_complete_tx>},
      {"mbarrier.arrive.(expect_tx)?.(release|relaxed)?.(cta|cluster)?.(shared|shared::cta|shared::cluster)?.b64",
       decode_arrive<false>},
      {"mbarrier.arrive.(noComplete).(release)?.(cta)?.(shared|shared::cta)?.b64", decode_arrive<false>},
      {"mbarrier.arrive_drop.(expect_tx)?.(release|relaxed)?.(cta|cluster)?.(shared|shared::cta|shared::cluster)?.b64",
       decode_arrive<true>},
      {"mbarrier.arrive_drop.(noComplete).(release)?.(cta)?.(shared|shared::cta)?.b64", decode_arrive<true>},
      {"mbarrier.test_wait.(parity)?.(acquire|relaxed)?.(cta|cluster)?.(shared|shared::cta)?.b64",
       decode_wait<run_test_wait>},
      {"mbarrier.try_wait.(parity)?.(acquire|relaxed)?.(cta|cluster)?.(shared|shared::cta)?.b64",
       decode_wait<run_try_wait>},
      {"mbarrier.pending_count.b64", decode_pending_count},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
