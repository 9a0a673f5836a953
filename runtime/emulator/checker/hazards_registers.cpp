// The checker's part for registers that asynchronous instructions use: accumulators and fragments of wgmma, and what a
// tcgen05.ld writes.
#include <fmt/format.h>

#include "kernelwright/runtime/emulator/checker/hazards_state.h"
#include "kernelwright/runtime/emulator/program/register_slots.h"

namespace kernelwright::emulator {

void Hazards::registers_busy(Warp& warp, std::span<const Slot> registers, bool written) {
  State::WarpState& state = state_->of(warp);
  const std::uint32_t group = state.groups[static_cast<int>(AsyncGroup::kWgmma)].committed + 1;
  for (const Slot slot : registers) {
    // If wgmma only reads a fragment of A, a further read by the warp is no conflict.
    const auto touched = state.unfenced.find(slot);
    if (touched != state.unfenced.end() && (written || touched->second))
      state_->report(HazardRule::kWgmmaFence, warp, -1,
                     "a wgmma uses a register that was read or written after the last wgmma.fence");
    const auto known = state.busy.find(slot);
    if (!written && known != state.busy.end() && known->second.written) {
      state_->report_pair(HazardRule::kWgmmaFragment, warp, -1, warp.current->index,
                          "a wgmma takes as A a register that a wgmma in flight writes", "", known->second.op,
                          state.agent, -1);
    }
    state.busy[slot] = {group, warp.current->index, written || (known != state.busy.end() && known->second.written)};
  }
}

void Hazards::registers_fence(Warp& warp) { state_->of(warp).unfenced.clear(); }

void Hazards::registers_touched(Warp& warp, const Op& op) {
  State::WarpState& state = state_->of(warp);
  const Slot limit = state_->launch.program->pinned_bytes;
  const auto touch = [&](Slot slot, bool written) {
    if (slot >= limit) return;
    state.unfenced[slot] |= written;
    if (!state.unwritten.empty()) state_->touch_unwritten(state, op, slot, written);
    if (const auto loading = state.loading.find(slot); loading != state.loading.end()) {
      state_->report_pair(HazardRule::kTensorLoadRegister, warp, -1, op.index,
                          fmt::format("a register is {} that a tcgen05.ld in flight writes: no tcgen05.wait::ld "
                                      "between them",
                                      written ? "written" : "read"),
                          "", loading->second, state.agent, -1);
      // The hardware completes the load here.
      state.loaded_by_use[loading->second] = state.now;
      std::erase_if(state.loading, [load = loading->second](const auto& entry) { return entry.second == load; });
      return;
    }
    const auto busy = state.busy.find(slot);
    if (busy == state.busy.end() || (!busy->second.written && !written)) return;
    state_->report_pair(HazardRule::kWgmmaRegister, warp, -1, op.index,
                        fmt::format("a register is {} while a wgmma in flight {} it: no wgmma.wait_group between them",
                                    written ? "written" : "read", busy->second.written ? "writes" : "reads"),
                        "", busy->second.op, state.agent, -1);
  };
  for (const Slot slot : {op.a, op.b, op.c}) touch(slot, false);
  const auto& parts = state_->launch.program->entry->instructions[op.index].parts;
  if (parts.size() > 1 && parts[0] == "tcgen05" && parts[1] == "ld") return;  // see registers_loading()
  for (const Slot slot : {op.d, op.e}) touch(slot, true);
  const bool list_written =
      !parts.empty() && (parts[0] == "ld" || parts[0] == "ldmatrix" || parts[0] == "mov" || parts[0] == "mma");
  for (std::uint32_t i = 0; i < op.list_size; ++i) touch(op.list[i], list_written);
  for (std::uint32_t i = 0; i < op.list2_size; ++i) touch(op.list2[i], false);
}

void Hazards::registers_loading(Warp& warp, std::span<const Slot> registers) {
  State::WarpState& state = state_->of(warp);
  state.loaded_by_use.erase(warp.current->index);
  for (const Slot slot : registers) {
    if (const auto old = state.unwritten.find(slot); old != state.unwritten.end()) {
      state_->note_unused(state, old->second);
      state.unwritten.erase(old);
    }
    const auto [found, fresh] = state.loading.try_emplace(slot, warp.current->index);
    if (!fresh)
      state_->report_pair(HazardRule::kTensorLoadTwice, warp, -1, warp.current->index,
                          "a tcgen05.ld writes a register that a tcgen05.ld in flight writes: no tcgen05.wait::ld "
                          "between them",
                          "", found->second, state.agent, -1);
    found->second = warp.current->index;
  }
}

void Hazards::State::pass_issues(const WarpState& warp, std::uint32_t done, Clock& clock) {
  for (const Warp& sibling : warp.warp->cta->warps) {
    if (sibling.index / 4 != warp.warp->index / 4) continue;
    const WarpState& state = of(sibling);
    for (auto issue = state.wgmma_issues.rbegin(); issue != state.wgmma_issues.rend(); ++issue)
      if (issue->group <= done) {
        clock.pass(state.agent, issue->time);
        break;
      }
  }
}

// ---------------------------------------------------------------------------------------------- unwritten values

void Hazards::register_unwritten(Warp& warp, Slot slot, LaneMask lanes) {
  state_->of(warp).unwritten[slot] = {lanes, warp.current->index};
}

void Hazards::State::touch_unwritten(WarpState& warp, const Op& op, Slot slot, bool written) {
  const auto found = warp.unwritten.find(slot);
  if (found == warp.unwritten.end()) return;
  const WarpState::Unwritten value = found->second;
  if ((value.lanes & warp.warp->current_lanes) == 0) return;
  if (written) {
    found->second.lanes &= ~warp.warp->current_lanes;
    if (found->second.lanes != 0) return;
    note_unused(warp, value);
    warp.unwritten.erase(found);
    return;
  }
  if (moves_to_nowhere(op)) return;
  report_pair(HazardRule::kUnwrittenTensor, *warp.warp, -1, op.index,
              "a value is used that a tcgen05.ld took from tensor memory that nothing has written", "", value.op,
              warp.agent, -1);
  std::erase_if(warp.unwritten, [&](const auto& entry) { return entry.second.op == value.op; });
}

void Hazards::State::note_unused(const WarpState& warp, const WarpState::Unwritten& unwritten) {
  report_pair(HazardRule::kUnwrittenUnused, *warp.warp, -1, unwritten.op,
              "tensor memory is read that nothing has written, and nothing uses the value", "", ~std::uint32_t{0}, -1,
              -1);
}

bool Hazards::State::moves_to_nowhere(const Op& op) {
  const std::vector<Instruction>& all = launch.program->entry->instructions;
  const auto is_move = [](const Instruction& instruction) { return instruction.parts[0] == "mov"; };
  const auto each_register = [](const auto& self, const Operand& operand, const auto& visit) -> void {
    if (operand.reg >= 0) visit(static_cast<std::size_t>(operand.reg));
    if (operand.paired >= 0) visit(static_cast<std::size_t>(operand.paired));
    for (const Operand& element : operand.elements) self(self, element, visit);
  };
  const auto any_used = [&](const Operand& operand) {
    bool used = false;
    each_register(each_register, operand, [&](std::size_t reg) { used |= used_registers[reg]; });
    return used;
  };
  if (!is_move(all[op.index])) return false;
  if (used_registers.empty()) {
    used_registers.resize(launch.program->entry->registers.size());
    // What a move reads is used if its result is. The other instructions come first, then moves until nothing changes.
    bool changed = true;
    for (bool moves = false; changed; moves = true) {
      changed = !moves;
      for (const Instruction& instruction : all) {
        if (is_move(instruction) != moves || (moves && !any_used(instruction.operands[0]))) continue;
        for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
          if (!reads(instruction, i)) continue;
          each_register(each_register, instruction.operands[i], [&](std::size_t reg) {
            changed |= !used_registers[reg];
            used_registers[reg] = true;
          });
        }
      }
    }
  }
  return !any_used(all[op.index].operands[0]);
}

}  // namespace kernelwright::emulator
