/// Where in a warp's register file each virtual register of an entry lives. Registers that no lane needs at the same
/// time share a place, which makes the file small enough for the cache: NVRTC names thousands, and needs a few dozen.
///
/// Sharing is decided per lane, because lanes of one warp may stand at different instructions. Two registers share only
/// if they are of one class: then lane l of either is at the same bytes, which no other lane touches. A 64-bit register
/// over a 32-bit one would put one lane's value where another lane, elsewhere in the program, still keeps its own; so
/// each class has an area of its own, predicates (one bit a lane) too.
#pragma once

#include <cstdint>
#include <vector>

#include "kernelwright/runtime/emulator/program/op.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// Bytes of one register over the warp's 32 lanes.
constexpr std::uint32_t slot_bytes_of(RegisterClass size) {
  return size == RegisterClass::kPredicate ? 4 : 32u << static_cast<unsigned>(size);
}

struct SlotMap {
  std::vector<Slot> slot;          // by register; kNoSlot where no instruction names it
  std::uint32_t bytes = 0;         // of the whole file, a multiple of 64
  std::uint32_t pinned_bytes = 0;  // pinned registers have [0, pinned_bytes) to themselves; a multiple of 64
};

enum class Sharing : std::uint8_t { kYes, kNo };

/// Predicates are aligned to 4 bytes, all else to 64. A register of `pinned` (by register; may be shorter) shares its
/// place with none: something reads or writes it while the lane runs on. Within an instruction no register that is
/// written shares with one that is read, so that a handler may write one result before it reads its next source.
/// Sharing::kNo gives every register a place of its own, to tell whether sharing is to blame.
SlotMap assign_slots(const Entry& entry, const std::vector<bool>& pinned, Sharing sharing = Sharing::kYes);

/// Whether the instruction writes the registers of that operand, a paired one among them. All other operands are read;
/// the accumulators of wgmma.mma_async are both.
bool defines(const Instruction& instruction, std::size_t operand);
bool reads(const Instruction& instruction, std::size_t operand);

/// Whether a lane that runs the instruction may go on with the one after it; if not, its targets are all.
bool falls_through(const Instruction& instruction);

}  // namespace kernelwright::emulator
