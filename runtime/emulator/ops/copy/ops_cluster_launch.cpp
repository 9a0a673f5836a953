/// clusterlaunchcontrol (PTX ISA "clusterlaunchcontrol.try_cancel", ".query_cancel"): a cluster takes over the work of
/// a cluster that has not begun.
///
/// The response, as this machine lays it out, is four 32-bit words: the ctaid of the cancelled cluster's first CTA, and
/// whether a cluster was cancelled. Each cluster is taken once: it begins, or it is cancelled.
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <span>

#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/ops/addresses.h"
#include "kernelwright/runtime/emulator/ops/copy/bulk_copy.h"
#include "kernelwright/runtime/emulator/ops/mbarrier.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint32_t kGranted = 0x0c1c0001, kRefused = 0x0c1c0000;

struct Response {
  std::uint32_t ctaid[3] = {};
  std::uint32_t verdict = kRefused;
};
static_assert(sizeof(Response) == 16);

// Op::imm of try_cancel.
enum Flag : std::uint64_t { kGeneric = 1, kMulticast = 2 };
// Op::list: the address of the response, and of the mbarrier.
constexpr std::size_t kTo = 0, kMbarrier = kSlotsPerAddress;

Response cancel(const Cluster& cluster, const Launch& launch) {
  Response response;
  std::optional<std::uint32_t> taken;
  if (cluster.cancel_next) taken = cluster.cancel_next();
  if (!taken) return response;
  response.verdict = kGranted;
  std::uint32_t rest = *taken;
  for (int i = 0; i < 3; ++i) {
    const std::uint32_t clusters = launch.grid[i] / launch.cluster[i];
    response.ctaid[i] = rest % clusters * launch.cluster[i];
    rest /= clusters;
  }
  return response;
}

std::uint32_t own_shared_address(Warp& warp, const Op& op, std::size_t slot, int lane, std::uint32_t bytes) {
  const std::uint64_t address = address_in(warp, op.list + slot, lane);
  if ((op.imm & kGeneric) == 0) return static_cast<std::uint32_t>(address);
  const GenericPlace place = generic_place(warp, lane, address, bytes, Access::kWrite);
  if (place.shared.cta == nullptr) throw Fault("clusterlaunchcontrol.try_cancel with an address outside shared memory");
  return static_cast<std::uint32_t>(address);
}

Step run_try_cancel(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  for_each_lane(lanes, [&](int lane) {
    constexpr std::uint32_t kBytes = sizeof(Response);
    const SignalledPlace place = signalled_place(warp, own_shared_address(warp, op, kTo, lane, kBytes),
                                                 own_shared_address(warp, op, kMbarrier, lane, 8), kBytes, kBytes);
    if (place.to.cta != warp.cta) throw Fault("clusterlaunchcontrol.try_cancel into another CTA's shared memory");
    const std::uint32_t to = place.to.offset, mbarrier = place.mbarrier.offset;
    // All CTAs of the cluster, or this CTA.
    const std::uint32_t all = (1u << cluster.ctas.size()) - 1;
    const std::uint32_t ranks = op.imm & kMulticast ? all : 1u << warp.cta->rank;
    for_each_destination(warp, ranks, [&](Cta& cta) {
      mbarrier_state(cta, mbarrier);  // throws if there is no mbarrier
      if (cluster.hazards) cluster.hazards->answer_wanted(warp, lane, cta, to);
      check_signalled_write(warp, lane, cta, to, mbarrier, kBytes);
      if (cluster.timeline) cluster.timeline->copy(warp, cta, to, mbarrier, kBytes);
    });
    cluster.async.issue(nullptr, [&warp, to, mbarrier, ranks] {
      const Response response = cancel(*warp.cta->cluster, *warp.launch);
      for_each_destination(warp, ranks, [&](Cta& cta) {
        std::memcpy(cta.shared.data() + to, &response, sizeof response);
        mbarrier_complete_bytes(cta, mbarrier, sizeof response);
      });
    });
  });
  return Step::kNext;
}

Response response_in(const Warp& warp, Slot slot, int lane) {
  // A 128-bit register is two arrays of 64-bit halves, low halves first.
  const auto* halves = warp.lanes<std::uint64_t>(slot);
  const std::uint64_t words[2] = {halves[lane], halves[32 + lane]};
  Response response;
  std::memcpy(&response, words, sizeof response);
  if (response.verdict != kGranted && response.verdict != kRefused)
    throw Fault(fmt::format("clusterlaunchcontrol.query_cancel of {:#018x}{:016x}, which no try_cancel has written",
                            words[1], words[0]));
  return response;
}

Step run_is_canceled(Warp& warp, const Op& op, LaneMask lanes) {
  LaneMask granted = 0;
  for_each_lane(lanes, [&](int lane) {
    if (response_in(warp, op.a, lane).verdict == kGranted) granted |= LaneMask{1} << lane;
  });
  warp.set_predicate(op.d, granted, lanes);
  return Step::kNext;
}

/// Op::list: registers for x, y and z; kNoSlot for one that is not wanted.
Step run_first_ctaid(Warp& warp, const Op& op, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) {
    const Response response = response_in(warp, op.a, lane);
    if (response.verdict != kGranted)
      throw Fault("clusterlaunchcontrol.query_cancel.get_first_ctaid of a request that was refused");
    for (std::size_t i = 0; i < 3; ++i)
      if (op.list[i] != kNoSlot) warp.lanes<std::uint32_t>(op.list[i])[lane] = response.ctaid[i];
  });
  return Step::kNext;
}

void decode_try_cancel(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decoder.expect_operands(2, 2);
  const bool generic = !decoder.has("shared::cta");
  if (generic) op.imm |= kGeneric;
  if (decoder.has("multicast::cluster::all")) op.imm |= kMulticast;
  const std::span<Slot> list = decoder.slots(2 * kSlotsPerAddress);
  const StateSpace space = generic ? StateSpace::kGeneric : StateSpace::kShared;
  decode_address(decoder, decoder.operands()[0], space, list.data() + kTo);
  decode_address(decoder, decoder.operands()[1], space, list.data() + kMbarrier);
  op.list = list.data();
  op.list_size = static_cast<std::uint8_t>(list.size());
  // The division of work among clusters would depend on the speed of the host's threads.
  decoder.communicates();
  op.run = run_try_cancel;
}

void decode_is_canceled(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decoder.expect_operands(2, 2);
  op.d = decoder.destination(0, RegisterClass::kPredicate);
  op.a = decoder.source(1, RegisterClass::k128);
  op.run = run_is_canceled;
}

void decode_first_ctaid(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decoder.expect_operands(2, 2);
  const std::span<Slot> list = decoder.slots(3);
  if (decoder.has("v4")) {
    const std::span<const Slot> vector = decoder.vector(0, RegisterClass::k32, /*destination=*/true);
    if (vector.size() != 4) decoder.refuse("needs a vector of 4 registers");
    for (std::size_t i = 0; i < 3; ++i) list[i] = vector[i];
  } else {
    const std::size_t i = decoder.has("get_first_ctaid::x") ? 0 : decoder.has("get_first_ctaid::y") ? 1 : 2;
    list[i] = decoder.destination(0, RegisterClass::k32);
  }
  op.list = list.data();
  op.list_size = 3;
  op.a = decoder.source(1, RegisterClass::k128);
  op.run = run_first_ctaid;
}

}  // namespace

std::span<const Form> cluster_launch_forms() {
  static constexpr Form kForms[] = {
      {"clusterlaunchcontrol.try_cancel.async.(shared::cta)?.mbarrier::complete_tx::bytes.(multicast::cluster::all)?."
       "b128",
       decode_try_cancel},
      {"clusterlaunchcontrol.query_cancel.is_canceled.pred.b128", decode_is_canceled},
      {"clusterlaunchcontrol.query_cancel.get_first_ctaid.(v4).b32.b128", decode_first_ctaid},
      {"clusterlaunchcontrol.query_cancel.(get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z).b32.b128",
       decode_first_ctaid},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
