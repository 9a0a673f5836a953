// The checker's part for registers that asynchronous instructions use: accumulators and fragments of wgmma, and what a
// tcgen05.ld writes.
#include <fmt/format.h>

#include "kernelwright/runtime/emulator/checker/hazards_state.h"

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
    if (const auto loading = state.loading.find(slot); loading != state.loading.end()) {
      state_->report_pair(HazardRule::kTensorLoadRegister, warp, -1, op.index,
                          fmt::format("a register is {} that a tcgen05.ld in flight writes: no tcgen05.wait::ld "
                                      "between them",
                                      written ? "written" : "read"),
                          "", loading->second, state.agent, -1);
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
  for (const Slot slot : {op.d, op.e}) touch(slot, true);
  const auto& parts = state_->launch.program->entry->instructions[op.index].parts;
  const bool list_written =
      !parts.empty() && (parts[0] == "ld" || parts[0] == "ldmatrix" || parts[0] == "mov" || parts[0] == "mma");
  for (std::uint32_t i = 0; i < op.list_size; ++i) touch(op.list[i], list_written);
  for (std::uint32_t i = 0; i < op.list2_size; ++i) touch(op.list2[i], false);
}

void Hazards::registers_loading(Warp& warp, std::span<const Slot> registers) {
  State::WarpState& state = state_->of(warp);
  for (const Slot slot : registers) {
    const auto [found, fresh] = state.loading.try_emplace(slot, warp.current->index);
    if (!fresh)
      state_->report_pair(HazardRule::kTensorLoadTwice, warp, -1, warp.current->index,
                          "a tcgen05.ld writes a register that a tcgen05.ld in flight writes: no tcgen05.wait::ld "
                          "between them",
                          "", found->second, state.agent, -1);
    found->second = warp.current->index;
  }
}

}  // namespace kernelwright::emulator
