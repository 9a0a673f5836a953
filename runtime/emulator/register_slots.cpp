#include "kernelwright/runtime/emulator/register_slots.h"

namespace kernelwright::emulator {

SlotMap assign_slots(const Entry& entry, const std::vector<bool>& pinned) {
  SlotMap map;
  map.slot.resize(entry.registers.size());
  for (const bool pinned_now : {true, false}) {
    for (std::size_t i = 0; i < entry.registers.size(); ++i) {
      if (pinned[i] != pinned_now) continue;
      const auto size = static_cast<std::uint32_t>(entry.registers[i]);
      map.slot[i] = map.bytes;
      map.bytes += size == 0 ? 64 : 32u << size;
    }
    if (pinned_now) map.pinned_bytes = map.bytes;
  }
  return map;
}

}  // namespace kernelwright::emulator
