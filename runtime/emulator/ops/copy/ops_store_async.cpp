/// st.async, red.async: stores into shared memory of the cluster that complete on an mbarrier.
#include <cstring>
#include <span>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/numbers/bulk_reduce.h"
#include "kernelwright/runtime/emulator/ops/addresses.h"
#include "kernelwright/runtime/emulator/ops/copy/bulk_copy.h"
#include "kernelwright/runtime/emulator/ops/mbarrier.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {
namespace {

// Op::list has the two addresses, Op::list2 the values; Op::imm names the reduction
constexpr std::size_t kTo = 0, kMbarrier = kSlotsPerAddress;

/// Element: the unsigned integer of the element's size.
template <class Element>
Step run_store_async(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  const auto reduce = reinterpret_cast<ReduceBytes>(op.imm);
  const std::uint32_t bytes = op.list2_size * static_cast<std::uint32_t>(sizeof(Element));
  for_each_lane(lanes, [&](int lane) {
    const SignalledPlace place = signalled_place(warp, address_in(warp, op.list + kTo, lane),
                                                 address_in(warp, op.list + kMbarrier, lane), bytes, bytes);
    Cta& cta = *place.to.cta;
    const std::uint32_t mbarrier = place.mbarrier.offset;
    struct {
      alignas(16) Element elements[4];
    } value = {};
    for (std::uint32_t i = 0; i < op.list2_size; ++i) value.elements[i] = warp.lanes<Element>(op.list2[i])[lane];
    if (Hazards* hazards = cluster.hazards) {
      if (reduce) {  // several CTAs may reduce into one place
        hazards->mbarrier_use(warp, lane, cta, mbarrier, /*async=*/true);
        hazards->mbarrier_attach(warp, lane, cta, mbarrier);
        hazards->access_atomic(warp, lane, place.to, bytes);
      } else {
        check_signalled_write(warp, lane, cta, place.to.offset, mbarrier, bytes);
      }
    }
    if (cluster.timeline) cluster.timeline->copy(warp, cta, place.to.offset, mbarrier, bytes);
    cluster.async.issue(nullptr, [&cta, to = place.to.host, mbarrier, bytes, value, reduce] {
      const auto* from = reinterpret_cast<const std::byte*>(value.elements);
      if (reduce)
        reduce(to, from, bytes);
      else
        std::memcpy(to, from, bytes);
      mbarrier_complete_bytes(cta, mbarrier, bytes);
    });
  });
  return Step::kNext;
}

void decode_addresses(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 3);
  const std::span<Slot> list = decoder.slots(2 * kSlotsPerAddress);
  decode_address(decoder, decoder.operands()[0], StateSpace::kShared, list.data() + kTo);
  decode_address(decoder, decoder.operands()[2], StateSpace::kShared, list.data() + kMbarrier);
  op.list = list.data();
  op.list_size = static_cast<std::uint8_t>(list.size());
}

void decode_values(Decoder& decoder, Op& op, std::string_view type) {
  const RegisterClass size = class_of_type(type);
  const std::span<const Slot> values = decoder.vector(1, size, /*destination=*/false);
  op.list2 = values.data();
  op.list2_size = static_cast<std::uint8_t>(values.size());
  op.run = size == RegisterClass::k64 ? run_store_async<std::uint64_t> : run_store_async<std::uint32_t>;
}

void decode_store_async(Decoder& decoder, Op& op) {
  decode_addresses(decoder, op);
  decode_values(decoder, op, decoder.choice(2));
  const std::string_view vector = decoder.choice(1);
  const std::size_t expected = vector == "v4" ? 4 : vector == "v2" ? 2 : 1;
  if (op.list2_size != expected) decoder.refuse("the number of values is not what the vector says");
  if (expected == 4 && bytes_of_type(decoder.choice(2)) == 8) decoder.refuse("stores 16 bytes at most");
}

void decode_reduce_async(Decoder& decoder, Op& op) {
  decode_addresses(decoder, op);
  decode_values(decoder, op, decoder.choice(1));
  const ReduceBytes reduce = bulk_reduction(decoder.choice(0), decoder.choice(1));
  if (!reduce) decoder.refuse("this operation does not take this type");
  op.imm = reinterpret_cast<std::uintptr_t>(reduce);
}

}  // namespace

std::span<const Form> store_async_forms() {
  static constexpr Form kForms[] = {
      {"st.async.(weak)?.shared::cluster.mbarrier::complete_tx::bytes.(v2|v4)?.(b32|u32|s32|f32|b64|u64|s64|f64)",
       decode_store_async},
      {"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.(inc|dec|min|max|add|and|or|xor)."
       "(u32|s32|u64|b32)",
       decode_reduce_async},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
