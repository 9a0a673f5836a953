// Control flow, and the instructions that concern the launch as a whole (PTX ISA "Control Flow Instructions",
// "griddepcontrol", "setmaxnreg", "nanosleep", "pmevent").
#include <fmt/format.h>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {
namespace {

void decode_branch(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  decoder.take(0);
  if (decoder.instruction().targets.size() != 1) decoder.refuse("has no target");
  op.flow = Flow::kBranch;
}

void decode_branch_table(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.a = decoder.source(0, RegisterClass::k32);
  decoder.take(1);
  if (decoder.instruction().targets.empty()) decoder.refuse("has no table of targets");
  op.flow = Flow::kBranchTable;
}

void decode_exit(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.flow = Flow::kExit;
}

void decode_return(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.flow = decoder.in_function() ? Flow::kReturn : Flow::kExit;
}

void decode_trap(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.flow = Flow::kTrap;
}

Step yield(Warp&, const Op&, LaneMask) { return Step::kYield; }
Step nothing(Warp&, const Op&, LaneMask) { return Step::kNext; }

void decode_nanosleep(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  decoder.source(0, RegisterClass::k32);
  op.run = yield;
}

void decode_pmevent(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  decoder.immediate(0, 0, 0xffff);
  op.run = nothing;
}

// Launches of a stream run one after the other here, so this wait never blocks. The checker looks at what a kernel does
// before the wait.
Step wait_for_dependency(Warp& warp, const Op&, LaneMask lanes) {
  if (Hazards* const hazards = warp.cta->cluster->hazards) hazards->wait_for_launches_ahead(warp, lanes);
  return Step::kNext;
}

void decode_dependency(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.run = decoder.choice(0) == "wait" ? wait_for_dependency : nothing;
}

// setmaxnreg: registers move between a warp and its CTA's pool (PTX ISA: all warps of a warpgroup must execute the same
// one). `inc` blocks until the pool has enough registers.
bool pool_has(const Warp& warp, const Wait& wait) { return warp.cta->pool_registers >= wait.value; }

std::string describe_pool(const Warp& warp, const Wait& wait) {
  return fmt::format("{} registers from the CTA's pool, which has {}", wait.value, warp.cta->pool_registers);
}

template <bool kIncreases>
Step set_registers(Warp& warp, const Op& op, LaneMask) {
  const auto wanted = static_cast<std::uint32_t>(op.imm);
  if (warp.launch->registers_known && (kIncreases ? wanted < warp.registers_each : wanted > warp.registers_each))
    throw Fault(fmt::format("setmaxnreg.{} {} where the warp has {} registers a thread", kIncreases ? "inc" : "dec",
                            wanted, warp.registers_each),
                HazardKind::kRegisterPool);
  if (wanted > warp.registers_each) {
    const std::uint32_t more = (wanted - warp.registers_each) * 32;
    if (warp.cta->pool_registers < more) {
      warp.wait = {.holds = pool_has, .describe = describe_pool, .value = more};
      return Step::kWait;
    }
    warp.cta->pool_registers -= more;
  } else {
    warp.cta->pool_registers += (warp.registers_each - wanted) * 32;
  }
  warp.registers_each = wanted;
  return Step::kNext;
}

void decode_setmaxnreg(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  op.imm = static_cast<std::uint64_t>(decoder.immediate(0, 24, 256));
  if (op.imm % 8 != 0) decoder.refuse("needs a multiple of 8");
  op.converge = Converge::kWarp;
  op.run = decoder.choice(0) == "inc" ? set_registers<true> : set_registers<false>;
}

constexpr Form kForms[] = {
    {"bra.(uni)?", decode_branch},
    {"brx.idx.(uni)?", decode_branch_table},
    {"ret.(uni)?", decode_return},
    {"exit", decode_exit},
    {"trap", decode_trap},
    {"brkpt", decode_trap},
    {"nanosleep.u32", decode_nanosleep},
    {"pmevent.(mask)?", decode_pmevent},
    {"griddepcontrol.(wait|launch_dependents)", decode_dependency},
    {"setmaxnreg.(inc|dec).sync.aligned.u32", decode_setmaxnreg},
};

}  // namespace

std::span<const Form> control_forms() { return kForms; }

}  // namespace kernelwright::emulator
