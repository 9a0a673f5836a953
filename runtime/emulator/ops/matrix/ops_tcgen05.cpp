/// tcgen05: allocation of tensor-memory columns (alloc, dealloc, relinquish_alloc_permit), the signal that operations
/// are done (commit), and fences (PTX ISA "TensorCore 5th Generation Family Instructions").
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <span>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/tensor_memory.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/ops/copy/bulk_copy.h"
#include "kernelwright/runtime/emulator/ops/mbarrier.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {
namespace {

// Op::imm of this family.
enum Flag : std::uint64_t { kPair = 1, kGenericAddress = 2, kMulticast = 4 };

constexpr std::uint32_t kLeastColumns = 32;

/// A value in which all lanes must agree.
std::uint32_t uniform(const Warp& warp, Slot slot, const char* what) {
  const auto* values = warp.lanes<std::uint32_t>(slot);
  for (int lane = 1; lane < 32; ++lane)
    if (values[lane] != values[0])
      throw Fault(fmt::format("{} differs between the lanes of warp {}", what, warp.index), HazardKind::kDivergence);
  return values[0];
}

std::uint32_t number_of_columns(const Warp& warp, Slot slot, const char* instruction) {
  const std::uint32_t columns = uniform(warp, slot, "the number of columns");
  if (!std::has_single_bit(columns) || columns < kLeastColumns || columns > kTensorColumns)
    throw Fault(fmt::format("{} of {} columns; it takes a power of two from {} to {}", instruction, columns,
                            kLeastColumns, kTensorColumns),
                HazardKind::kTensorMemory);
  return columns;
}

SharedPlace shared_operand(Warp& warp, const Op& op, int lane, std::uint32_t bytes, const char* what) {
  const std::uint64_t address = lane_address(warp, op, lane);
  if ((op.imm & kGenericAddress) == 0) return shared_place(warp, static_cast<std::uint32_t>(address), bytes);
  const GenericPlace place = generic_place(warp, lane, address, bytes, Access::kWrite);
  if (place.shared.cta == nullptr) throw Fault(fmt::format("{} is not in shared memory", what));
  return place.shared;
}

// ---------------------------------------------------------------------------------------------- allocation

/// The first column for a request of `cta`, if the request can be granted now: the columns are free, and for a pair
/// both CTAs have asked.
std::optional<std::uint32_t> grantable(Cta& cta, std::uint32_t columns, bool pair) {
  TensorMemory& own = tensor_memory(cta);
  if (!pair) return own.find_free(columns, nullptr);
  TensorMemory& other = tensor_memory(peer_cta(cta, "tcgen05.alloc"));
  if (own.pair.granted) return own.pair.column;
  return other.pair.asked ? own.find_free(columns, &other) : std::nullopt;
}

bool allocation_possible(const Warp& warp, const Wait& wait) {
  return grantable(*warp.cta, wait.address, wait.value != 0).has_value();
}

std::string describe_allocation(const Warp& warp, const Wait& wait) {
  TensorMemory& own = tensor_memory(*warp.cta);
  if (wait.value != 0 && !tensor_memory(peer_cta(*warp.cta, "tcgen05.alloc")).pair.asked)
    return fmt::format("the peer CTA to ask for {} columns of tensor memory as well", wait.address);
  return fmt::format("{} free columns of tensor memory (allocated: {})", wait.address, own.describe());
}

Step run_alloc(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("tcgen05.alloc", lanes);
  const bool pair = (op.imm & kPair) != 0;
  Cta& cta = *warp.cta;
  TensorMemory& own = tensor_memory(cta);
  const std::uint32_t columns = number_of_columns(warp, op.b, "tcgen05.alloc");
  const SharedPlace to = shared_operand(warp, op, 0, 4, "where tcgen05.alloc puts its address");
  if (to.cta != &cta) throw Fault("tcgen05.alloc puts its address into the CTA's own shared memory");
  if (own.permit_relinquished)
    throw Fault("tcgen05.alloc after tcgen05.relinquish_alloc_permit in the same CTA", HazardKind::kTensorMemory);
  Hazards* hazards = cta.cluster->hazards;
  if (pair && !own.pair.granted) {
    const TensorMemory& other = tensor_memory(peer_cta(cta, "tcgen05.alloc"));
    own.pair.asked = true;
    own.pair.columns = columns;
    if (other.pair.asked && other.pair.columns != columns)
      throw Fault(fmt::format("tcgen05.alloc with cta_group::2 of {} columns in one CTA and {} in its peer", columns,
                              other.pair.columns),
                  HazardKind::kTensorMemory);
  }
  const std::optional<std::uint32_t> column = grantable(cta, columns, pair);
  if (!column) {
    warp.wait = {
        .holds = allocation_possible, .describe = describe_allocation, .address = columns, .value = pair ? 1u : 0u};
    return Step::kWait;
  }
  const auto by = static_cast<std::uint32_t>(cta.rank * cta.warps.size() + warp.index);
  const auto take = [&](Cta& of) {
    tensor_memory(of).allocate({*column, columns, pair ? 2 : 1, op.index, by});
    if (hazards) hazards->tensor_allocated(of, *column, columns);
  };
  if (!own.pair.granted) {
    take(cta);
    if (pair) {
      Cta& peer = peer_cta(cta, "tcgen05.alloc");
      take(peer);
      tensor_memory(peer).pair = {.asked = false, .granted = true, .columns = columns, .column = *column};
    }
  }
  own.pair = {};
  const std::uint32_t address = TensorAddress{0, *column}.bits();
  std::memcpy(to.host, &address, sizeof address);
  if (hazards) {
    hazards->access(warp, 0, Access::kWrite, to, 4);
    hazards->sync_lanes(warp, lanes);  // one instruction of the whole warp
  }
  return Step::kNext;
}

Step run_dealloc(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("tcgen05.dealloc", lanes);
  const std::uint32_t columns = number_of_columns(warp, op.b, "tcgen05.dealloc");
  const TensorAddress at = TensorAddress::of(uniform(warp, op.a, "the address"));
  TensorMemory& memory = tensor_memory(*warp.cta);
  if (Hazards* hazards = warp.cta->cluster->hazards; hazards && memory.allocated(at.column, columns))
    hazards->tensor_deallocated(warp, *warp.cta, at.column, columns);
  if (at.lane != 0 || !memory.deallocate(at.column, columns, op.imm & kPair ? 2 : 1))
    throw Fault(fmt::format("tcgen05.dealloc of {} columns from lane {}, column {} with cta_group::{}, which is no "
                            "allocation; allocated: {}",
                            columns, at.lane, at.column, op.imm & kPair ? 2 : 1, memory.describe()),
                HazardKind::kTensorMemory);
  return Step::kNext;
}

Step run_relinquish(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("tcgen05.relinquish_alloc_permit", lanes);
  if (op.imm & kPair) peer_cta(*warp.cta, "tcgen05.relinquish_alloc_permit");
  tensor_memory(*warp.cta).permit_relinquished = true;
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- commit and fences

/// All tcgen05 instructions of a kernel must have one cta_group: a commit with the other cta_group follows no issued
/// operation.
void check_group(Cta& cta, int group) {
  for (const TensorMemory::Allocation& allocation : tensor_memory(cta).allocations())
    if (allocation.cta_group != group)
      throw Fault(fmt::format("tcgen05.commit with cta_group::{} where tensor memory was allocated with cta_group::{}",
                              group, allocation.cta_group));
}

/// An arrival after all tcgen05.mma, .cp and .shift that the lane has issued. It is the last of their chain.
Step run_commit(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  check_group(*warp.cta, op.imm & kPair ? 2 : 1);
  for_each_lane(lanes, [&](int lane) {
    const SharedPlace at = shared_operand(warp, op, lane, 8, "the mbarrier");
    Hazards* hazards = cluster.hazards;
    if (hazards) hazards->tensor_commit(warp, lane);
    if (op.imm & kPair) peer_cta(*warp.cta, "tcgen05.commit");
    const auto arrive = [&](Cta& cta) {
      mbarrier_state(cta, at.offset);  // throws if there is no mbarrier
      if (hazards) hazards->tensor_commit_arrives(warp, lane, cta, at.offset);
      if (cluster.timeline) cluster.timeline->arrive(warp, mbarrier_at(cta, at.offset));
      cluster.async.issue(tensor_chain(warp, lane), [&cta, offset = at.offset] { mbarrier_arrive_async(cta, offset); });
    };
    if (op.imm & kMulticast)
      for_each_destination(warp, warp.lanes<std::uint16_t>(op.c)[lane], arrive);
    else
      arrive(*at.cta);
  });
  return Step::kNext;
}

template <bool kAfter>
Step run_fence(Warp& warp, const Op&, LaneMask lanes) {
  if (Hazards* hazards = warp.cta->cluster->hazards)
    kAfter ? hazards->tensor_fence_after(warp, lanes) : hazards->tensor_fence_before(warp, lanes);
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- decoding

void decode_group(Decoder& decoder, Op& op) {
  decoder.require_tensor_memory();
  if (decoder.has("cta_group::2")) op.imm |= kPair;
}

void decode_alloc(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  decode_group(decoder, op);
  const bool generic = !decoder.has("shared::cta");
  if (generic) op.imm |= kGenericAddress;
  decoder.address(0, generic ? StateSpace::kGeneric : StateSpace::kShared, op);
  op.b = decoder.source(1, RegisterClass::k32);
  op.converge = Converge::kWarp;
  op.run = run_alloc;
}

void decode_dealloc(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  decode_group(decoder, op);
  op.a = decoder.source(0, RegisterClass::k32);
  op.b = decoder.source(1, RegisterClass::k32);
  op.converge = Converge::kWarp;
  op.run = run_dealloc;
}

void decode_relinquish(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  decode_group(decoder, op);
  op.converge = Converge::kWarp;
  op.run = run_relinquish;
}

void decode_commit(Decoder& decoder, Op& op) {
  const bool multicast = decoder.has("multicast::cluster");
  decoder.expect_operands(multicast ? 2 : 1, multicast ? 2 : 1);
  decode_group(decoder, op);
  const bool generic = !decoder.has("shared::cluster");
  if (generic) op.imm |= kGenericAddress;
  if (multicast) {
    op.imm |= kMulticast;
    op.c = decoder.source(1, RegisterClass::k16);
  }
  decoder.address(0, generic ? StateSpace::kGeneric : StateSpace::kShared, op);
  op.run = run_commit;
}

template <bool kAfter>
void decode_fence(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  decoder.require_tensor_memory();
  op.run = run_fence<kAfter>;
}

}  // namespace

std::span<const Form> tcgen05_forms() {
  static constexpr Form kForms[] = {
      {"tcgen05.alloc.(cta_group::1|cta_group::2).sync.aligned.(shared::cta)?.b32", decode_alloc},
      {"tcgen05.dealloc.(cta_group::1|cta_group::2).sync.aligned.b32", decode_dealloc},
      {"tcgen05.relinquish_alloc_permit.(cta_group::1|cta_group::2).sync.aligned", decode_relinquish},
      {"tcgen05.commit.(cta_group::1|cta_group::2).mbarrier::arrive::one.(shared::cluster)?.(multicast::cluster)?.b64",
       decode_commit},
      {"tcgen05.fence::before_thread_sync", decode_fence<false>},
      {"tcgen05.fence::after_thread_sync", decode_fence<true>},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
