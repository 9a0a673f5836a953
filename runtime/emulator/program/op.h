/// One decoded instruction, ready to run: its handler, and where its operands are in a warp's register file.
///
/// A register is an array over the warp's 32 lanes (b16: 64 bytes, b32: 128, b64: 256, b128: two b64 arrays, low halves
/// first). A predicate is one 32-bit mask. A register's place is its Slot. Immediates, symbol addresses and special
/// registers have slots too, which are filled when the warp begins. So a handler need not know what kind of source it
/// has.
#pragma once

#include <cstdint>

namespace kernelwright::emulator {

struct Warp;
struct Op;

using LaneMask = std::uint32_t;  // bit l: lane l
inline constexpr LaneMask kAllLanes = ~LaneMask{0};

using Slot = std::uint32_t;  // byte offset into a warp's register file
inline constexpr Slot kNoSlot = ~Slot{0};

/// What a handler tells the scheduler.
enum class Step : std::uint8_t {
  kNext,   // done: continue with the next instruction
  kYield,  // done, but let other warps run first: a poll that failed, nanosleep
  kWait,   // not done: `warp.wait` says what the lanes wait for
};

/// Runs `op` for the lanes in `lanes`, which is never empty. Guard and convergence have been handled. Throws Fault.
using Handler = Step (*)(Warp& warp, const Op& op, LaneMask lanes);

/// What the scheduler itself must know about an instruction.
enum class Flow : std::uint8_t { kPlain, kBranch, kBranchTable, kExit, kTrap, kCall, kReturn };

/// Which lanes must stand at the instruction together before it runs.
enum class Converge : std::uint8_t {
  kNo,
  kWarp,     // all live lanes (.aligned)
  kMembers,  // the live lanes that the mask in `members` names
};

struct Op {
  Handler run = nullptr;
  Flow flow = Flow::kPlain;
  Converge converge = Converge::kNo;
  bool guard_negated = false;
  bool wide_address = false;    // the base of the address has 64 bits
  bool touches_pinned = false;  // reads or writes a register that an asynchronous instruction may use
  std::uint8_t list_size = 0, list2_size = 0;
  Slot guard = kNoSlot;
  Slot members = kNoSlot;
  Slot d = kNoSlot, e = kNoSlot;               // destinations
  Slot a = kNoSlot, b = kNoSlot, c = kNoSlot;  // sources; `a` is the base if there is an address
  std::int32_t offset = 0;                     // bytes; offset of the address
  std::uint32_t index = 0;                     // index into Entry::instructions
  std::uint64_t imm = 0;                       // for the handler: a shape, a count, flags
  const Slot* list = nullptr;                  // the registers of a vector operand
  const Slot* list2 = nullptr;                 // the registers of a second vector operand
  const std::uint32_t* targets = nullptr;      // targets of a branch: op indexes
  std::uint32_t target_count = 0;
};

}  // namespace kernelwright::emulator
