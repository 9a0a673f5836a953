#include "kernelwright/runtime/emulator/machine/warp_access.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernelwright/runtime/emulator/machine/fault.h"

namespace kernelwright::emulator {

void fault_of_missing_lanes(const char* instruction, LaneMask lanes) {
  throw Fault(fmt::format("{}: all 32 lanes of the warp must execute it together, and only those in {:#010x} do; "
                          "a branch, a guard or a CTA size that is no multiple of 32 keeps the others away",
                          instruction, lanes),
              HazardKind::kDivergence);
}

void perform_tensor_load(Warp& warp, std::uint32_t number) {
  const auto found = std::ranges::find(warp.tensor_loads, number, &Warp::TensorLoad::number);
  if (found == warp.tensor_loads.end()) return;
  const std::function<void()> perform = std::move(found->perform);
  warp.tensor_loads.erase(found);
  perform();
}

void perform_touched_loads(Warp& warp, const Op& op) {
  const auto touches = [&](const Op& load) {
    const auto loaded = [&](Slot slot) {
      if (slot == kNoSlot) return false;
      return slot == load.d || std::find(load.list, load.list + load.list_size, slot) != load.list + load.list_size;
    };
    if (loaded(op.a) || loaded(op.b) || loaded(op.c)) return true;
    if (op.run == load.run) return false;
    return loaded(op.d) || loaded(op.e) || std::any_of(op.list, op.list + op.list_size, loaded) ||
           std::any_of(op.list2, op.list2 + op.list2_size, loaded);
  };
  std::vector<std::uint32_t> numbers;
  for (const Warp::TensorLoad& load : warp.tensor_loads)
    if (touches(*load.op)) numbers.push_back(load.number);
  for (const std::uint32_t number : numbers) perform_tensor_load(warp, number);
}

}  // namespace kernelwright::emulator
