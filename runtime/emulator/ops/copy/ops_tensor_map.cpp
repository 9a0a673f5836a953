/// tensormap.replace and tensormap.cp_fenceproxy: kernels that edit tensor maps (PTX ISA "Data Movement: tensormap").
#include <cstring>
#include <span>
#include <string_view>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/checker/tensor_map_shadow.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/ops/addresses.h"
#include "kernelwright/runtime/emulator/ops/copy/bulk_copy.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

// ---- tensormap.replace: Op::imm is the field and, from bit 32, the dimension; Op::b the value
template <class Value>
Step run_replace(Warp& warp, const Op& op, LaneMask lanes) {
  const auto field = static_cast<TensorMapField>(op.imm & 0xff);
  const bool shared = (op.imm & 0x100) != 0;
  const auto ordinal = static_cast<std::uint32_t>(op.imm >> 32);
  for_each_lane(lanes, [&](int lane) {
    const std::uint64_t address = lane_address(warp, op, lane);
    require_multiple("the address of the tensor map", address, 64);
    std::byte* map = nullptr;
    Hazards* hazards = warp.cta->cluster->hazards;
    if (shared) {
      const SharedPlace place = shared_place(warp, static_cast<std::uint32_t>(address), sizeof(TensorMap));
      if (hazards) hazards->access(warp, lane, Access::kWrite, place, sizeof(TensorMap));
      map = place.host;
    } else {
      map = global_place(warp, address, sizeof(TensorMap), Access::kWrite);
      if (hazards) hazards->tensor_map_written(warp, lane, address);
    }
    replace_tensor_map_field(map, field, ordinal, warp.lanes<Value>(op.b)[lane]);
  });
  return Step::kNext;
}

void decode_replace(Decoder& decoder, Op& op) {
  static constexpr struct {
    std::string_view name;
    TensorMapField field;
    bool wide, ordinal, constant;  // the value has 64 bits; a dimension comes before it; it is a constant
  } kFields[] = {
      {"global_address", TensorMapField::kAddress, true, false, false},
      {"rank", TensorMapField::kRank, false, false, false},
      {"box_dim", TensorMapField::kBoxDim, false, true, false},
      {"global_dim", TensorMapField::kGlobalDim, false, true, false},
      {"global_stride", TensorMapField::kGlobalStride, true, true, false},
      {"element_stride", TensorMapField::kElementStride, false, true, false},
      {"elemtype", TensorMapField::kElement, false, false, true},
      {"interleave_layout", TensorMapField::kInterleave, false, false, true},
      {"swizzle_mode", TensorMapField::kSwizzle, false, false, true},
      {"swizzle_atomicity", TensorMapField::kSwizzleAtomicity, false, false, true},
      {"fill_mode", TensorMapField::kFill, false, false, true},
  };
  decoder.communicates();
  for (const auto& row : kFields) {
    if (decoder.choice(0) != row.name) continue;
    if (row.wide != decoder.has("b64")) decoder.refuse(row.wide ? "this field takes .b64" : "this field takes .b32");
    const std::size_t operands = row.ordinal ? 3 : 2;
    decoder.expect_operands(operands, operands);
    const bool shared = decoder.has("shared::cta");
    decoder.address(0, shared ? StateSpace::kShared : StateSpace::kGlobal, op);
    op.imm = static_cast<std::uint64_t>(row.field) | (shared ? 0x100 : 0);
    if (row.ordinal) op.imm |= static_cast<std::uint64_t>(decoder.immediate(1, 0, 4)) << 32;
    if (row.constant) decoder.immediate(operands - 1, 0, 15);
    op.b = decoder.source(operands - 1, row.wide ? RegisterClass::k64 : RegisterClass::k32);
    op.run = row.wide ? run_replace<std::uint64_t> : run_replace<std::uint32_t>;
    return;
  }
  decoder.refuse("this field is not modelled");
}

// ---- tensormap.cp_fenceproxy: Op::list has the addresses of the map in global and in shared memory; Op::imm the scope

/// The warp copies the map as one, then releases it to the tensormap proxy.
Step run_copy_and_fence(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("tensormap.cp_fenceproxy", lanes);
  const std::uint64_t to = address_in(warp, op.list, 0), from = address_in(warp, op.list + kSlotsPerAddress, 0);
  for_each_lane(lanes, [&](int lane) {
    if (address_in(warp, op.list, lane) != to || address_in(warp, op.list + kSlotsPerAddress, lane) != from)
      throw Fault("tensormap.cp_fenceproxy with addresses that differ between the lanes of a warp");
  });
  require_multiple("the address of the tensor map in global memory", to, 128);
  require_multiple("the address of the tensor map in shared memory", from, 128);
  std::byte* const map = global_place(warp, to, sizeof(TensorMap), Access::kWrite);
  const SharedPlace source = shared_place(warp, static_cast<std::uint32_t>(from), sizeof(TensorMap));
  if (source.cta != warp.cta) throw Fault("tensormap.cp_fenceproxy out of another CTA's shared memory");
  std::memcpy(map, source.host, sizeof(TensorMap));
  if (Hazards* hazards = warp.cta->cluster->hazards) {
    // The first and the last lane speak for all: a lane whose edit the warp has not waited for is found.
    for (const int lane : {0, 31}) hazards->access(warp, lane, Access::kRead, source, sizeof(TensorMap));
    hazards->tensor_map_written(warp, 0, to);
    hazards->sync_lanes(warp, lanes);
    hazards->tensor_map_released(warp, lanes, static_cast<FenceScope>(op.imm));
  }
  return Step::kNext;
}

void decode_copy_and_fence(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 3);
  const std::span<Slot> list = decoder.slots(2 * kSlotsPerAddress);
  decode_address(decoder, decoder.operands()[0], StateSpace::kGlobal, list.data());
  decode_address(decoder, decoder.operands()[1], StateSpace::kShared, list.data() + kSlotsPerAddress);
  decoder.immediate(2, 128, 128);
  decoder.communicates();
  op.list = list.data();
  op.list_size = static_cast<std::uint8_t>(list.size());
  op.imm = static_cast<std::uint64_t>(decoder.has("cta")       ? FenceScope::kCta
                                      : decoder.has("cluster") ? FenceScope::kCluster
                                                               : FenceScope::kGpu);
  op.converge = Converge::kWarp;
  op.run = run_copy_and_fence;
}

}  // namespace

std::span<const Form> tensor_map_forms() {
  static constexpr Form kForms[] = {
      {"tensormap.replace.tile.(global_address|rank|box_dim|global_dim|global_stride|element_stride|elemtype|"
       "interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode).(global|shared::cta).b1024.(b32|b64)",
       decode_replace},
      {"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.(cta|cluster|gpu|sys).sync.aligned",
       decode_copy_and_fence},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
