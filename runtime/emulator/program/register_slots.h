/// Where each virtual register of an entry lives in a warp's register file. Registers that no lane needs at the same
/// time share a place. So the file is small enough for the cache: NVRTC names thousands of registers, and a few dozen
/// places suffice.
///
/// Sharing is decided per lane, because lanes of one warp may stand at different instructions. Two registers share only
/// if they have the same class: then lane l of both is at the same bytes, and no other lane touches these bytes. If a
/// 64-bit register shared with a 32-bit one, a lane could overwrite a value that another lane, elsewhere in the
/// program, still needs. So each class has its own area, predicates (one bit per lane) too.
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
  std::vector<Slot> slot;          // by register; kNoSlot if no instruction names it
  std::uint32_t bytes = 0;         // of the whole file, a multiple of 64
  std::uint32_t pinned_bytes = 0;  // pinned registers have [0, pinned_bytes) for themselves; a multiple of 64
};

enum class Sharing : std::uint8_t { kYes, kNo };

/// Predicates are aligned to 4 bytes, other registers to 64. A register of `pinned` (by register; may be shorter)
/// shares its place with none, because an asynchronous operation reads or writes it while the lane continues. Within an
/// instruction, no written register shares with a read one, so a handler may write one result before it reads its next
/// source. Sharing::kNo gives every register its own place, to find out whether sharing causes an error.
SlotMap assign_slots(const Entry& entry, const std::vector<bool>& pinned, Sharing sharing = Sharing::kYes);

/// Whether the instruction writes the registers of this operand, including a paired register. It reads all other
/// operands; the accumulators of wgmma.mma_async are both.
bool defines(const Instruction& instruction, std::size_t operand);
bool reads(const Instruction& instruction, std::size_t operand);

/// Whether a lane that runs the instruction may continue with the next one. If not, it continues only at the targets.
bool falls_through(const Instruction& instruction);

}  // namespace kernelwright::emulator
