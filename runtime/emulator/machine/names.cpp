#include "kernelwright/runtime/emulator/machine/names.h"

#include <fmt/format.h>

#include <string_view>

#include "kernelwright/runtime/emulator/program/program.h"
#include "kernelwright/runtime/emulator/program/shared_layout.h"

namespace kernelwright::emulator {

std::string role_of(const LaunchNotes* notes, std::uint32_t warp) {
  if (notes)
    for (const LaunchNotes::Role& role : notes->roles)
      if (warp >= role.first_warp && warp - role.first_warp < role.num_warps) return role.name;
  return "";
}

namespace {

/// The named range that contains an offset of a CTA's shared memory, and the offset in it; null if no range does.
const LaunchNotes::Range* find_range(const LaunchNotes* notes, const Program& program, std::uint32_t offset,
                                     std::uint32_t& within) {
  const std::uint32_t base = kSharedBase + program.dynamic_shared_at;
  if (!notes || offset < base) return nullptr;
  for (const LaunchNotes::Range& range : notes->shared) {
    const std::uint32_t at = offset - base;
    if (at < range.offset || at - range.offset >= range.bytes) continue;
    within = at - range.offset;
    return &range;
  }
  return nullptr;
}

}  // namespace

std::string name_of_shared(const LaunchNotes* notes, const Program& program, std::uint32_t offset) {
  const std::string address = fmt::format("shared {}", offset);
  std::uint32_t within = 0;
  const LaunchNotes::Range* range = find_range(notes, program, offset, within);
  if (!range) return address;
  if (range->stage_bytes == 0) return fmt::format("{} ({})", range->name, address);
  return fmt::format("{} stage {} ({})", range->name, within / range->stage_bytes, address);
}

std::string short_name_of_shared(const LaunchNotes* notes, const Program& program, std::uint32_t offset) {
  std::uint32_t within = 0;
  const LaunchNotes::Range* range = find_range(notes, program, offset, within);
  if (!range) return fmt::format("shared {}", offset);
  std::string_view name = range->name;
  for (const std::string_view ending : {" barriers", " barrier"})
    if (name.ends_with(ending) && name.size() > ending.size()) name.remove_suffix(ending.size());
  if (range->stage_bytes == 0) return std::string(name);
  return fmt::format("{}[{}]", name, within / range->stage_bytes);
}

}  // namespace kernelwright::emulator
