/// Operands for instructions with more than one address. An Op has room for one address only. So each address operand
/// becomes three entries of a list of Slots: base, offset in bytes, and whether the base has 64 bits.
#pragma once

#include <cstdint>

#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/program/op.h"

namespace kernelwright::emulator {

inline constexpr std::size_t kSlotsPerAddress = 3;

inline void decode_address(Decoder& decoder, const Operand& operand, StateSpace space, Slot* out) {
  Op scratch;
  decoder.address(operand, space, scratch);
  out[0] = scratch.a;
  out[1] = static_cast<Slot>(scratch.offset);
  out[2] = scratch.wide_address;
}

inline std::uint64_t address_in(const Warp& warp, const Slot* address, int lane) {
  const std::int64_t offset = static_cast<std::int32_t>(address[1]);
  const std::uint64_t base =
      address[2] ? warp.lanes<std::uint64_t>(address[0])[lane] : warp.lanes<std::uint32_t>(address[0])[lane];
  return base + static_cast<std::uint64_t>(offset);
}

}  // namespace kernelwright::emulator
