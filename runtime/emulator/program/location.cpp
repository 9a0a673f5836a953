#include "kernelwright/runtime/emulator/program/location.h"

#include <fmt/format.h>

#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {

namespace {

/// Line `number` (from 1) of a text, without blanks at its ends.
std::string line_of(const std::string& text, int number) {
  std::size_t begin = 0;
  for (int line = 1; line < number && begin != std::string::npos; ++line) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return "";
  std::string found = text.substr(begin, text.find('\n', begin) - begin);
  found.erase(0, std::min(found.find_first_not_of(" \t"), found.size()));
  constexpr std::size_t kLongest = 160;
  if (found.size() > kLongest) found = found.substr(0, kLongest) + "…";
  return found;
}

}  // namespace

std::string role_of(const LaunchNotes* notes, std::uint32_t warp) {
  if (notes)
    for (const LaunchNotes::Role& role : notes->roles)
      if (warp >= role.first_warp && warp - role.first_warp < role.num_warps) return role.name;
  return "";
}

HazardSide side_of(const LaunchNotes* notes, const Warp& warp, int lane, std::uint32_t index) {
  return side_of(notes, *warp.launch->program, warp.cta->id, warp.index, lane, index);
}

HazardSide side_of(const LaunchNotes* notes, const Program& program, const std::uint32_t (&cta)[3], std::uint32_t warp,
                   int lane, std::uint32_t index) {
  HazardSide side;
  std::copy(std::begin(cta), std::end(cta), std::begin(side.cta));
  side.warp = static_cast<int>(warp);
  side.lane = lane;
  side.role = role_of(notes, warp);
  if (index < program.entry->instructions.size()) {
    const Instruction& instruction = program.entry->instructions[index];
    side.ptx_line = instruction.line;
    side.instruction = line_of(program.module->text, instruction.line);
    if (instruction.source.file >= 0 &&
        static_cast<std::size_t>(instruction.source.file) < program.module->files.size()) {
      const std::string& file = program.module->files[static_cast<std::size_t>(instruction.source.file)];
      side.source = fmt::format("{}:{}", file.substr(file.rfind('/') + 1), instruction.source.line);
    }
  }
  return side;
}

std::string text_of(const HazardSide& side) {
  std::string text = fmt::format("CTA ({}, {}, {})", side.cta[0], side.cta[1], side.cta[2]);
  if (side.warp >= 0) text += fmt::format(" warp {}", side.warp);
  if (!side.role.empty()) text += fmt::format(" ({})", side.role);
  if (side.lane >= 0) text += fmt::format(" lane {}", side.lane);
  if (side.ptx_line > 0) text += fmt::format(", PTX line {} `{}`", side.ptx_line, side.instruction);
  if (!side.source.empty()) text += ", " + side.source;
  return text;
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
