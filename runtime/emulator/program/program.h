/// An entry, decoded: its Ops, and what a warp's register file holds at the beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/program/op.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// A source that depends on where the warp is, and has a slot of its own in the register file.
enum class Special : std::uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kClusterIdX,
  kClusterIdY,
  kClusterIdZ,
  kNclusterIdX,
  kNclusterIdY,
  kNclusterIdZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtarank,
  kClusterNctarank,
  kIsExplicitCluster,
  kDynamicSharedBytes,
  kTotalSharedBytes,
  kSmId,
  kNsmId,
  kGridId,
  kSharedSymbol,  // `value` plus the CTA's rank
  kParameter,     // generic address of the launch's parameters plus `value`
};

struct SpecialSlot {
  Slot slot = kNoSlot;
  Special what = Special::kTidX;
  bool wide = false;  // 64 bits
  std::uint64_t value = 0;
};

struct Program {
  const Module* module = nullptr;
  const Entry* entry = nullptr;
  std::vector<Op> ops;               // one per instruction, and a final exit
  std::uint32_t register_bytes = 0;  // of one warp, constants and special registers included
  std::uint32_t pinned_bytes = 0;    // at its beginning: registers that asynchronous instructions may own
  std::uint32_t constants_at = 0;    // where `constants` go
  std::vector<std::byte> constants;
  std::vector<SpecialSlot> specials;
  std::uint32_t static_shared_bytes = 0;  // where the launch's dynamic shared memory begins
  std::uint32_t dynamic_shared_at = 0;    // where the entry's first dynamic variable begins
  /// Clusters talk to each other through global memory (atomics, acquires, volatile): they run on one thread, so that
  /// what they see depends on the seed alone.
  bool clusters_communicate = false;
  std::deque<std::vector<Slot>> slot_lists;             // what Op::list points into
  std::deque<std::vector<std::uint32_t>> target_lists;  // what Op::targets points into
};

/// Puts what may be spelt in several ways into the spelling of the decoder's table, so that whoever reads parts and
/// operands meets one: modifiers in another order that means the same (modifier_order.h), and vectors of one register
/// where a register would do (`ld.global.b32 {%r1}, [%rd1]`). `opcode` stays as it was written.
void respell(Module& module);

/// Decodes `entry` of `module`, which respell() has gone over and which must outlive the program. `globals` is where
/// module.global_image was put. Throws PtxError, naming the line, for what is not modelled.
std::unique_ptr<Program> decode(const Module& module, const Entry& entry, std::uint64_t globals);

}  // namespace kernelwright::emulator
