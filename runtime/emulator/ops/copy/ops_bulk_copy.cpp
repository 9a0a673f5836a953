/// cp.async.bulk and cp.reduce.async.bulk: runs of bytes (PTX ISA "Data Movement: Bulk Copy"). Sizes and addresses are
/// multiples of 16.
#include <algorithm>
#include <cstring>
#include <span>

#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/numbers/bulk_reduce.h"
#include "kernelwright/runtime/emulator/ops/addresses.h"
#include "kernelwright/runtime/emulator/ops/copy/bulk_copy.h"
#include "kernelwright/runtime/emulator/ops/mbarrier.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {
namespace {

// Op::list: three addresses with kSlotsPerAddress entries each. Op::b is the size, Op::c the mask of a multicast.
constexpr std::size_t kTo = 0, kFrom = kSlotsPerAddress, kMbarrier = 2 * kSlotsPerAddress;

/// Copies ask for no more, whatever their size: one of 32 bytes is no vector.
constexpr std::uint32_t kAlignment = 16;

std::uint32_t size_of_copy(const Warp& warp, const Op& op, int lane) {
  const std::uint32_t bytes = warp.lanes<std::uint32_t>(op.b)[lane];
  require_multiple("the size of a bulk copy", bytes, 16);
  return bytes;
}

SharedPlace shared_source(Warp& warp, const Op& op, int lane, std::uint32_t bytes) {
  const SharedPlace from =
      shared_place(warp, static_cast<std::uint32_t>(address_in(warp, op.list + kFrom, lane)), bytes, kAlignment);
  require_multiple("the source in shared memory", from.offset, 16);
  return from;
}

std::byte* global_end(Warp& warp, std::uint64_t address, std::uint32_t bytes, Access access) {
  require_multiple("the address in global memory", address, 16);
  return global_place(warp, address, bytes, access, kAlignment);
}

Step run_load(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  for_each_lane(lanes, [&](int lane) {
    const std::uint32_t bytes = size_of_copy(warp, op, lane);
    const std::uint64_t address = address_in(warp, op.list + kFrom, lane);
    const std::byte* from = global_end(warp, address, bytes, Access::kRead);
    const SignalledPlace place = signalled_place(warp, address_in(warp, op.list + kTo, lane),
                                                 address_in(warp, op.list + kMbarrier, lane), bytes, 16);
    if (cluster.hazards) cluster.hazards->access_global(warp, lane, Access::kRead, address, bytes);
    const auto load = [&](Cta& cta) {
      const std::uint32_t to = place.to.offset, mbarrier = place.mbarrier.offset;
      check_signalled_write(warp, lane, cta, to, mbarrier, bytes);
      if (cluster.timeline) cluster.timeline->copy(warp, cta, to, mbarrier, bytes);
      cluster.copied_bytes += bytes;
      cluster.async.issue(nullptr, [&cta, from, to, mbarrier, bytes] {
        std::memcpy(cta.shared.data() + to, from, bytes);
        mbarrier_complete_bytes(cta, mbarrier, bytes);
      });
    };
    if (op.c == kNoSlot)
      load(*place.to.cta);
    else
      for_each_destination(warp, warp.lanes<std::uint16_t>(op.c)[lane], load);
  });
  return Step::kNext;
}

/// A copy, or a reduction if Op::imm names one, into another CTA of the cluster.
Step run_to_cluster(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  const auto reduce = reinterpret_cast<ReduceBytes>(op.imm);
  for_each_lane(lanes, [&](int lane) {
    const std::uint32_t bytes = size_of_copy(warp, op, lane);
    const SharedPlace from = shared_source(warp, op, lane, bytes);
    const SignalledPlace place = signalled_place(warp, address_in(warp, op.list + kTo, lane),
                                                 address_in(warp, op.list + kMbarrier, lane), bytes, 16);
    Cta& cta = *place.to.cta;
    const std::uint32_t mbarrier = place.mbarrier.offset;
    if (Hazards* hazards = cluster.hazards) {
      hazards->access_async(warp, lane, Access::kRead, Proxy::kAsync, hazards->completes_on(cta, mbarrier), *from.cta,
                            from.offset, bytes);
      if (reduce) {  // several CTAs may reduce into one place
        hazards->mbarrier_use(warp, lane, cta, mbarrier, /*async=*/true);
        hazards->mbarrier_attach(warp, lane, cta, mbarrier);
        hazards->access_atomic(warp, lane, place.to, bytes);
      } else {
        check_signalled_write(warp, lane, cta, place.to.offset, mbarrier, bytes);
      }
    }
    cluster.copied_bytes += bytes;
    if (cluster.timeline) cluster.timeline->copy(warp, cta, place.to.offset, mbarrier, bytes);
    cluster.async.issue(nullptr, [&cta, source = from.host, to = place.to.host, mbarrier, bytes, reduce] {
      if (reduce)
        reduce(to, source, bytes);
      else
        std::memmove(to, source, bytes);
      mbarrier_complete_bytes(cta, mbarrier, bytes);
    });
  });
  return Step::kNext;
}

/// A copy to global memory, or a reduction if Op::imm names one.
Step run_store(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  const auto reduce = reinterpret_cast<ReduceBytes>(op.imm);
  for_each_lane(lanes, [&](int lane) {
    const std::uint32_t bytes = size_of_copy(warp, op, lane);
    const SharedPlace from = shared_source(warp, op, lane, bytes);
    const std::uint64_t address = address_in(warp, op.list + kTo, lane);
    std::byte* to = global_end(warp, address, bytes, Access::kWrite);
    if (Hazards* hazards = cluster.hazards) {
      hazards->access_async(warp, lane, Access::kRead, Proxy::kAsync, hazards->of_group(warp, AsyncGroup::kBulk),
                            *from.cta, from.offset, bytes);
      if (reduce) hazards->access_global(warp, lane, Access::kRead, address, bytes);
      hazards->access_global(warp, lane, Access::kWrite, address, bytes);
    }
    cluster.copied_bytes += bytes;
    if (cluster.timeline) cluster.timeline->store(warp, from.offset, bytes);
    issue_in_bulk_group(warp, lane, [source = from.host, to, bytes, reduce] {
      if (reduce)
        reduce(to, source, bytes);
      else
        std::memcpy(to, source, bytes);
    });
  });
  return Step::kNext;
}

/// A copy to global memory of the bytes of each 16 that the mask in Op::c names.
Step run_masked_store(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  for_each_lane(lanes, [&](int lane) {
    const std::uint32_t bytes = size_of_copy(warp, op, lane);
    const SharedPlace from = shared_source(warp, op, lane, bytes);
    const std::uint64_t address = address_in(warp, op.list + kTo, lane);
    std::byte* to = global_end(warp, address, bytes, Access::kWrite);
    const std::uint32_t mask = warp.lanes<std::uint16_t>(op.c)[lane];
    if (Hazards* hazards = cluster.hazards) {
      hazards->access_async(warp, lane, Access::kRead, Proxy::kAsync, hazards->of_group(warp, AsyncGroup::kBulk),
                            *from.cta, from.offset, bytes);
      for (std::uint32_t at = 0; at < bytes; ++at)
        if ((mask >> at % 16 & 1) != 0) hazards->access_global(warp, lane, Access::kWrite, address + at, 1);
    }
    cluster.copied_bytes += bytes;
    if (cluster.timeline) cluster.timeline->store(warp, from.offset, bytes);
    issue_in_bulk_group(warp, lane, [source = from.host, to, bytes, mask] {
      for (std::uint32_t at = 0; at < bytes; ++at)
        if ((mask >> at % 16 & 1) != 0) to[at] = source[at];
    });
  });
  return Step::kNext;
}

/// st.bulk: zeroes Op::b bytes of the CTA's shared memory, a multiple of 8.
Step run_fill(Warp& warp, const Op& op, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) {
    const std::uint64_t bytes = warp.lanes<std::uint64_t>(op.b)[lane], address = lane_address(warp, op, lane);
    require_multiple("the size of st.bulk", bytes, 8);
    require_multiple("the address of st.bulk", address, 8);
    if (bytes == 0) return;
    const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, 1 << 24));
    const SharedPlace place = op.imm != 0 ? shared_place(warp, static_cast<std::uint32_t>(address), size)
                                          : generic_place(warp, lane, address, size, Access::kWrite).shared;
    if (place.cta != warp.cta) throw Fault("st.bulk outside of the CTA's own shared memory");
    if (Hazards* hazards = warp.cta->cluster->hazards) hazards->access(warp, lane, Access::kWrite, place, size);
    std::memset(place.host, 0, size);
  });
  return Step::kNext;
}

Step run_nothing(Warp&, const Op&, LaneMask) { return Step::kNext; }

Step run_commit_group(Warp& warp, const Op&, LaneMask lanes) {
  warp.bulk_groups.commit(lanes);
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->commit_group(warp, AsyncGroup::kBulk);
  return Step::kNext;
}

// A wait for bulk groups: Wait::address has the lanes. Wait::value has the number of groups that may be pending, and
// kRead.
constexpr std::uint64_t kRead = std::uint64_t{1} << 32;

bool groups_complete(const Warp& warp, LaneMask lanes, std::uint64_t value) {
  return warp.bulk_groups.complete(lanes, static_cast<std::uint32_t>(value), (value & kRead) != 0);
}

Step run_wait_group(Warp& warp, const Op& op, LaneMask lanes) {
  if (!groups_complete(warp, lanes, op.imm)) {
    warp.wait = {.holds = [](const Warp& w, const Wait& wait) { return groups_complete(w, wait.address, wait.value); },
                 .describe =
                     [](const Warp& w, const Wait& wait) {
                       return std::to_string(w.bulk_groups.outstanding()) + " bulk copies of this warp to " +
                              (wait.value & kRead ? "have read their sources" : "complete");
                     },
                 .address = lanes,
                 .value = op.imm};
    return Step::kWait;
  }
  if (Hazards* hazards = warp.cta->cluster->hazards)
    hazards->wait_group(warp, lanes, AsyncGroup::kBulk, static_cast<std::uint32_t>(op.imm));
  return Step::kNext;
}

void decode_addresses(Decoder& decoder, Op& op, StateSpace to, StateSpace from, bool mbarrier) {
  const std::span<Slot> list = decoder.slots(3 * kSlotsPerAddress);
  decode_address(decoder, decoder.operands()[0], to, list.data() + kTo);
  decode_address(decoder, decoder.operands()[1], from, list.data() + kFrom);
  op.b = decoder.source(2, RegisterClass::k32);
  if (mbarrier) decode_address(decoder, decoder.operands()[3], StateSpace::kShared, list.data() + kMbarrier);
  op.list = list.data();
  op.list_size = static_cast<std::uint8_t>(list.size());
}

void decode_load(Decoder& decoder, Op& op) {
  const bool multicast = decoder.has("multicast::cluster");
  decoder.expect_operands(multicast ? 5 : 4, multicast ? 5 : 4);
  decode_addresses(decoder, op, StateSpace::kShared, StateSpace::kGlobal, true);
  if (multicast) op.c = decoder.source(4, RegisterClass::k16);
  op.run = run_load;
}

void decode_to_cluster(Decoder& decoder, Op& op) {
  decoder.expect_operands(4, 4);
  decode_addresses(decoder, op, StateSpace::kShared, StateSpace::kShared, true);
  op.run = run_to_cluster;
}

void decode_store(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 3);
  decode_addresses(decoder, op, StateSpace::kGlobal, StateSpace::kShared, false);
  op.run = run_store;
}

void decode_masked_store(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decoder.expect_operands(4, 4);
  decode_addresses(decoder, op, StateSpace::kGlobal, StateSpace::kShared, false);
  op.c = decoder.source(3, RegisterClass::k16);
  op.run = run_masked_store;
}

void decode_fill(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decoder.expect_operands(3, 3);
  op.imm = decoder.has("shared::cta");
  decoder.address(0, op.imm != 0 ? StateSpace::kShared : StateSpace::kGeneric, op);
  op.b = decoder.source(1, RegisterClass::k64);
  decoder.immediate(2, 0, 0);
  op.run = run_fill;
}

/// The operation and the type are the first two choices, in whichever order the opcode has them.
void decode_reduction(Decoder& decoder, Op& op) {
  const ReduceBytes reduce = bulk_reduction(decoder.choice(0), decoder.choice(1));
  if (!reduce) decoder.refuse("this operation does not take this type");
  op.imm = reinterpret_cast<std::uintptr_t>(reduce);
}

void decode_reduce_to_global(Decoder& decoder, Op& op) {
  decode_store(decoder, op);
  decode_reduction(decoder, op);
  decoder.communicates();
}

void decode_reduce_to_cluster(Decoder& decoder, Op& op) {
  decode_to_cluster(decoder, op);
  decode_reduction(decoder, op);
}

void decode_prefetch(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  Slot address[kSlotsPerAddress];
  decode_address(decoder, decoder.operands()[0], StateSpace::kGlobal, address);
  decoder.source(1, RegisterClass::k32);
  op.run = run_nothing;
}

void decode_commit_group(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.run = run_commit_group;
}

void decode_wait_group(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  op.imm = static_cast<std::uint64_t>(decoder.immediate(0, 0, 0x7fffffff));
  if (decoder.has("read")) op.imm |= kRead;
  op.run = run_wait_group;
}

}  // namespace

std::span<const Form> bulk_copy_forms() {
  static constexpr Form kForms[] = {
      {"cp.async.bulk.(shared::cluster|shared::cta).global.mbarrier::complete_tx::bytes.(multicast::cluster)?",
       decode_load},
      {"cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", decode_to_cluster},
      {"cp.async.bulk.global.shared::cta.bulk_group", decode_store},
      {"cp.async.bulk.global.shared::cta.bulk_group.cp_mask", decode_masked_store},
      {"st.bulk.(weak)?.(shared::cta)?", decode_fill},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.(add).noftz.(f16|bf16)", decode_reduce_to_global},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.(min|max).(f16|bf16)", decode_reduce_to_global},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.(add|min|max|inc|dec|and|or|xor)."
       "(u32|s32|u64|s64|b32|b64|f32|f64)",
       decode_reduce_to_global},
      {"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes."
       "(add|min|max|inc|dec|and|or|xor).(u32|s32|u64|s64|b32)",
       decode_reduce_to_cluster},
      {"cp.async.bulk.prefetch.L2.global", decode_prefetch},
      {"cp.async.bulk.commit_group", decode_commit_group},
      {"cp.async.bulk.wait_group.(read)?", decode_wait_group},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
