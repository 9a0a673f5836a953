/// A decoded entry: its Ops, and the initial contents of a warp's register file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernelwright/runtime/emulator/program/op.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

class LinedText;

/// A source whose value depends on the warp's position, with its own slot in the register file.
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
  kTotalSharedBytes,  // plus `value`
  kSmId,
  kNsmId,
  kGridId,
  kGridWorkspace,  // 32 bits of Launch::grid_workspace, from bit `value` on
  kNumber,         // `value`
  kSharedSymbol,   // `value` plus the CTA's rank
  kParameter,      // generic address of the launch's parameters plus `value`
};

struct SpecialSlot {
  Slot slot = kNoSlot;
  Special what = Special::kTidX;
  RegisterClass size = RegisterClass::k32;
  std::uint64_t value = 0;
};

struct Program {
  /// A register that holds the address of a byte of a function's frame. Each call of the function fills it in.
  struct FrameSlot {
    Slot slot = kNoSlot;
    RegisterClass size = RegisterClass::k32;
    std::uint64_t offset = 0;  // in the frame
  };
  struct CalledFunction {
    const LinkedFunction* linked = nullptr;
    std::vector<FrameSlot> frame_slots;
    std::vector<std::pair<Slot, RegisterClass>> registers;
  };
  struct Call {
    int function = -1;  // index into `functions`; -1: the function whose address is in op.a
    Signature actual;   // the places of results and arguments in the caller's frame
  };

  const Module* module = nullptr;
  LinedText* lined = nullptr;           // for reports: the lines that `module` does not name; null: there are none
  std::unique_ptr<const Entry> linked;  // `entry`, if the entry calls functions
  const Entry* entry = nullptr;
  std::vector<Op> ops;               // one per instruction, and a final exit
  std::uint32_t register_bytes = 0;  // of one warp, including constants and special registers
  std::uint32_t pinned_bytes = 0;    // at the start of the file: registers that asynchronous instructions may use
  std::uint32_t constants_at = 0;    // offset at which `constants` are placed
  std::vector<std::byte> constants;
  std::uint32_t start = 0;        // the op at which threads begin
  std::uint64_t stack_bytes = 0;  // local memory of one thread
  std::vector<CalledFunction> functions;
  std::vector<Call> calls;  // by Op::imm of calls
  std::vector<SpecialSlot> specials;
  std::uint32_t static_shared_bytes = 0;  // offset at which the launch's dynamic shared memory begins
  std::uint32_t dynamic_shared_at = 0;    // offset at which the entry's first dynamic variable begins
  /// Clusters communicate through global memory (atomics, acquires, volatile). They then run on one host thread, so
  /// that the values that they see depend on the seed alone.
  bool clusters_communicate = false;
  bool uses_heap = false;                               // malloc and free of a kernel
  bool uses_reserved_shared = false;                    // %reserved_smem_offset_1
  bool reads_grid_workspace = false;                    // %envreg1 or %envreg2: a grid that synchronises
  std::deque<std::vector<Slot>> slot_lists;             // targets of Op::list
  std::deque<std::vector<std::uint32_t>> target_lists;  // targets of Op::targets
};

/// Rewrites what may be spelt in several ways into the spelling of the decoder's table, so that later code meets one
/// spelling of parts and operands. This concerns modifiers in another order with the same meaning (modifier_order.h),
/// and vectors of one register in place of a register (`ld.global.b32 {%r1}, [%rd1]`). `opcode` keeps its spelling.
void respell(Module& module);

/// Decodes `entry` of `module`. respell() must have processed the module, and the module must outlive the program.
/// `globals` is the address of module.global_image. Throws PtxError, naming the line, for what is not modelled.
std::unique_ptr<Program> decode(const Module& module, const Entry& entry, std::uint64_t globals);

}  // namespace kernelwright::emulator
