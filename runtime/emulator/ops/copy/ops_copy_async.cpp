/// cp.async (PTX ISA "Non-bulk copy"): 4, 8 or 16 bytes per lane from global to shared memory, completed in groups or
/// on an mbarrier.
///
/// Copies of one warp are one chain of their cluster's AsyncQueue and are performed in the order of issue. An arrival
/// on an mbarrier goes to the same chain, so it follows the copies for which it waits. If the queue performs at once,
/// nothing is kept: the copy is done when the instruction ends, and no wait blocks.
#include <cstring>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/ops/mbarrier.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {

namespace {

// The destination is the Op's own address. op.b is the source's base, and the low 32 bits of op.imm its offset. The
// flags are the other bits of op.imm.
constexpr std::uint64_t kWideSource = 1ull << 32;
constexpr std::uint64_t kIgnoreSource = 1ull << 33;   // op.c is a predicate: copy zeros
constexpr std::uint64_t kIgnoreUnless = 1ull << 34;   // … if the predicate is false
constexpr std::uint64_t kHasSourceSize = 1ull << 35;  // op.c: bytes to read; the others become zeros
constexpr std::uint64_t kGenericMbarrier = 1ull << 36;
constexpr std::uint64_t kNoIncrement = 1ull << 37;

std::uint64_t source_address(const Warp& warp, const Op& op, int lane) {
  const std::uint64_t base =
      op.imm & kWideSource ? warp.lanes<std::uint64_t>(op.b)[lane] : warp.lanes<std::uint32_t>(op.b)[lane];
  return base + static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(op.imm))});
}

/// The number of bytes that a lane reads.
std::uint32_t source_bytes(const Warp& warp, const Op& op, int lane, std::uint32_t bytes) {
  if (op.imm & kIgnoreSource) {
    const bool set = (warp.predicate(op.c) >> lane & 1) != 0;
    return set != ((op.imm & kIgnoreUnless) != 0) ? 0 : bytes;
  }
  return op.imm & kHasSourceSize ? warp.lanes<std::uint32_t>(op.c)[lane] : bytes;
}

struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::uint32_t source_bytes = 0;
  CopyGroups::Ticket ticket = {};
};

template <std::uint32_t kBytes>
void perform(const Copy& copy) {
  std::byte bytes[kBytes] = {};
  if (copy.source_bytes != 0) std::memcpy(bytes, copy.from, copy.source_bytes);
  std::memcpy(copy.to, bytes, kBytes);
}

/// The path for a full warp whose copies are performed at once and unchecked. True if all lanes were in bounds, with
/// whole sources or none.
template <std::uint32_t kBytes>
bool copy_warp(Warp& warp, const Op& op) {
  std::uint32_t to[32];
  if (!(op.imm & kWideSource) || !own_shared_offsets(warp, op, 32, kBytes, to)) return false;
  const auto& allocation = warp.last_allocation;
  if (allocation.end - allocation.begin < kBytes) return false;
  const std::uint64_t span = allocation.end - allocation.begin - kBytes;
  const auto offset =
      static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(op.imm))});
  const auto* base = warp.lanes<std::uint64_t>(op.b);
  LaneMask reads = kAllLanes;
  if (op.imm & kIgnoreSource) {
    reads = op.imm & kIgnoreUnless ? warp.predicate(op.c) : ~warp.predicate(op.c);
  } else if (op.imm & kHasSourceSize) {
    const auto* sizes = warp.lanes<std::uint32_t>(op.c);
    std::uint32_t shortened = 0, partial = 0;
    for (int lane = 0; lane < 32; ++lane) {
      shortened |= sizes[lane] ^ kBytes;
      partial |= sizes[lane] != 0 && sizes[lane] != kBytes ? 1u : 0u;
    }
    if (partial != 0) return false;
    if (shortened != 0) {
      reads = 0;
      for (int lane = 0; lane < 32; ++lane) reads |= (sizes[lane] != 0 ? 1u : 0u) << lane;
    }
  }
  std::byte* shared = warp.cta->shared.data();
  std::uint64_t outside = 0, low_bits = 0;
  if (reads == kAllLanes) {
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint64_t from = base[lane] + offset;
      outside |= from - allocation.begin > span ? 1u : 0u;
      low_bits |= from;
    }
    if (outside != 0 || (low_bits & (kBytes - 1)) != 0) return false;
    for (int lane = 0; lane < 32; ++lane)
      std::memcpy(shared + to[lane], reinterpret_cast<const std::byte*>(base[lane] + offset), kBytes);
    return true;
  }
  for_each_lane(reads, [&](int lane) {
    const std::uint64_t from = base[lane] + offset;
    outside |= from - allocation.begin > span ? 1u : 0u;
    low_bits |= from;
  });
  if (outside != 0 || (low_bits & (kBytes - 1)) != 0) return false;
  for_each_lane(reads, [&](int lane) {
    std::memcpy(shared + to[lane], reinterpret_cast<const std::byte*>(base[lane] + offset), kBytes);
  });
  for_each_lane(~reads, [&](int lane) { std::memset(shared + to[lane], 0, kBytes); });
  return true;
}

template <std::uint32_t kBytes>
Step copy_async(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  Hazards* const hazards = cluster.hazards;
  const bool at_once = cluster.async.performs_at_once();
  if (at_once && hazards == nullptr && lanes == kAllLanes && copy_warp<kBytes>(warp, op)) return Step::kNext;

  std::vector<Copy> pending;
  const AsyncAgent agent = hazards ? hazards->of_group(warp, AsyncGroup::kCopy) : AsyncAgent{};
  for_each_lane(lanes, [&](int lane) {
    const auto to = shared_place(warp, static_cast<std::uint32_t>(lane_address(warp, op, lane)), kBytes);
    Copy copy{.to = to.host, .source_bytes = source_bytes(warp, op, lane, kBytes)};
    if (copy.source_bytes > kBytes)
      throw Fault("cp.async copies " + std::to_string(kBytes) + " bytes and is told to read " +
                  std::to_string(copy.source_bytes));
    if (copy.source_bytes != 0) {
      const std::uint64_t from = source_address(warp, op, lane);
      if (from % kBytes != 0)
        throw Fault("cp.async of " + std::to_string(kBytes) + " bytes from a global address that is not aligned to it",
                    HazardKind::kOutOfBounds);
      copy.from = global_place(warp, from, copy.source_bytes, Access::kRead);
      if (hazards) hazards->access_global(warp, lane, Access::kRead, from, copy.source_bytes);
    }
    if (hazards) hazards->access_async(warp, lane, Access::kWrite, Proxy::kGeneric, agent, *to.cta, to.offset, kBytes);
    if (at_once) {
      perform<kBytes>(copy);
    } else {
      copy.ticket = warp.copy_groups.issue(lane);
      pending.push_back(copy);
    }
  });
  if (!at_once)
    cluster.async.issue(&warp.copy_groups, [groups = &warp.copy_groups, copies = std::move(pending)] {
      for (const Copy& copy : copies) {
        perform<kBytes>(copy);
        groups->reads_done(copy.ticket);
        groups->done(copy.ticket);
      }
    });
  return Step::kNext;
}

void commit(Warp& warp, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  if (cluster.hazards) cluster.hazards->commit_group(warp, AsyncGroup::kCopy);
  if (!cluster.async.performs_at_once()) warp.copy_groups.commit(lanes);
}

Step commit_group(Warp& warp, const Op&, LaneMask lanes) {
  commit(warp, lanes);
  return Step::kNext;
}

// Wait::value: the waiting lanes, above the number of groups that may be incomplete.
LaneMask waiting_lanes(const Wait& wait) { return static_cast<LaneMask>(wait.value >> 32); }
std::uint32_t allowed_groups(const Wait& wait) { return static_cast<std::uint32_t>(wait.value); }

bool groups_complete(const Warp& warp, const Wait& wait) {
  return warp.copy_groups.complete(waiting_lanes(wait), allowed_groups(wait), false);
}

Step finish_wait(Warp& warp, LaneMask lanes, std::uint32_t allowed) {
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->wait_group(warp, lanes, AsyncGroup::kCopy, allowed);
  return Step::kNext;
}

Step wake_from_groups(Warp& warp, const Op&, LaneMask lanes, const Wait& wait) {
  return finish_wait(warp, lanes, allowed_groups(wait));
}

std::string describe_groups(const Warp& warp, const Wait& wait) {
  return "all but " + std::to_string(allowed_groups(wait)) + " of its cp.async groups (" +
         std::to_string(warp.copy_groups.outstanding()) + " copies of the warp are not performed)";
}

Step wait_for_groups(Warp& warp, LaneMask lanes, std::uint32_t allowed) {
  if (warp.cta->cluster->async.performs_at_once() || warp.copy_groups.complete(lanes, allowed, false))
    return finish_wait(warp, lanes, allowed);
  warp.wait = {.holds = groups_complete,
               .wake = wake_from_groups,
               .describe = describe_groups,
               .value = std::uint64_t{lanes} << 32 | allowed};
  return Step::kWait;
}

Step wait_group(Warp& warp, const Op& op, LaneMask lanes) {
  return wait_for_groups(warp, lanes, static_cast<std::uint32_t>(op.imm));
}

Step wait_all(Warp& warp, const Op&, LaneMask lanes) {
  commit(warp, lanes);
  return wait_for_groups(warp, lanes, 0);
}

/// cp.async.mbarrier.arrive: an arrival by each lane once the copies that it has issued are performed. Without .noinc
/// the current phase expects one more arrival, so init need not count it.
Step arrive(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  for_each_lane(lanes, [&](int lane) {
    const std::uint64_t address = lane_address(warp, op, lane);
    SharedPlace at;
    if (op.imm & kGenericMbarrier) {
      at = generic_place(warp, lane, address, 8, Access::kWrite).shared;
      if (at.cta == nullptr) throw Fault("cp.async.mbarrier.arrive on an address that is not in shared memory");
    } else {
      at = shared_place(warp, static_cast<std::uint32_t>(address), 8);
    }
    if (cluster.hazards) {
      cluster.hazards->mbarrier_use(warp, lane, *at.cta, at.offset, /*async=*/false);
      cluster.hazards->mbarrier_attach_copies(warp, lane, *at.cta, at.offset);
    }
    if (cluster.timeline) cluster.timeline->arrive_after_copies(warp, mbarrier_at(*at.cta, at.offset));
    if (!(op.imm & kNoIncrement)) mbarrier_expect_arrival(warp, lane, at);
    cluster.async.issue(&warp.copy_groups, [cta = at.cta, offset = at.offset] { mbarrier_arrive_async(*cta, offset); });
  });
  return Step::kNext;
}

void decode_copy(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 4);
  decoder.address(0, StateSpace::kShared, op);
  Op source;
  decoder.address(1, StateSpace::kGlobal, source);
  op.b = source.a;
  op.imm = static_cast<std::uint32_t>(source.offset);
  if (source.wide_address) op.imm |= kWideSource;
  if (decoder.num_operands() == 4) {
    const Operand& last = decoder.operands()[3];
    if (last.kind == Operand::Kind::kRegister && decoder.register_class(last) == RegisterClass::kPredicate) {
      op.imm |= kIgnoreSource;
      if (decoder.negated(3)) op.imm |= kIgnoreUnless;
      op.c = decoder.source(3, RegisterClass::kPredicate);
    } else {
      op.imm |= kHasSourceSize;
      op.c = decoder.source(3, RegisterClass::k32);
    }
  }
  const std::int64_t bytes = decoder.immediate(2, 4, 16);
  if (decoder.choice(0) == "cg" && bytes != 16) decoder.refuse(".cg copies 16 bytes");
  switch (bytes) {
    case 4: op.run = copy_async<4>; break;
    case 8: op.run = copy_async<8>; break;
    case 16: op.run = copy_async<16>; break;
    default: decoder.refuse("copies 4, 8 or 16 bytes");
  }
}

void decode_commit(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.run = commit_group;
}

void decode_wait_group(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  op.imm = static_cast<std::uint64_t>(decoder.immediate(0, 0, INT32_MAX));
  op.run = wait_group;
}

void decode_wait_all(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.run = wait_all;
}

void decode_arrive(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  const bool generic = decoder.choice(1).empty();
  decoder.address(0, generic ? StateSpace::kGeneric : StateSpace::kShared, op);
  // A 32-bit register without a state space can only hold a shared address.
  if (generic && op.wide_address) op.imm |= kGenericMbarrier;
  if (decoder.has("noinc")) op.imm |= kNoIncrement;
  op.run = arrive;
}

constexpr Form kForms[] = {
    {"cp.async.(ca|cg).(shared|shared::cta).global", decode_copy},
    {"cp.async.commit_group", decode_commit},
    {"cp.async.wait_group", decode_wait_group},
    {"cp.async.wait_all", decode_wait_all},
    {"cp.async.mbarrier.arrive.(noinc)?.(shared|shared::cta)?.b64", decode_arrive},
};

}  // namespace

std::span<const Form> copy_async_forms() { return kForms; }

}  // namespace kernelwright::emulator
