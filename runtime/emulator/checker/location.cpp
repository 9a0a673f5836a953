#include "kernelwright/runtime/emulator/checker/location.h"

#include <fmt/format.h>

#include <vector>

#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {

namespace {

/// The statement that begins in line `number` (from 1) of a text, in one line. A call often takes several.
std::string statement_of(const std::string& text, int number) {
  std::size_t begin = 0;
  for (int line = 1; line < number && begin != std::string::npos; ++line) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return "";
  constexpr std::size_t kLongest = 160;
  std::string found;
  for (bool whole = false; !whole && begin < text.size() && found.size() <= kLongest;) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    if (!found.empty() && !line.empty() && found.back() != '(' && line.front() != ')') found += ' ';
    found += line;
    whole = line.find(';') != std::string_view::npos || line.find("//") != std::string_view::npos ||
            (!line.empty() && std::string_view("{}:").find(line.back()) != std::string_view::npos);
    begin = end + 1;
  }
  if (found.size() > kLongest) found = found.substr(0, kLongest) + "…";
  return found;
}

}  // namespace

TextPlace place_of(const Program& program, std::uint32_t index) {
  if (index >= program.entry->instructions.size()) return {};
  const Instruction& instruction = program.entry->instructions[index];
  if (program.lined)
    if (const TextPlace* lined = program.lined->find(instruction.line)) return *lined;
  return {program.module, instruction.line, instruction.source};
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
    for (const LinkedFunction& function : program.entry->functions)
      if (static_cast<int>(index) >= function.first_instruction && static_cast<int>(index) < function.end_instruction)
        side.function = function.name;
    const TextPlace place = place_of(program, index);
    side.ptx_line = place.line;
    side.instruction = statement_of(place.module->text, place.line);
    const std::vector<std::string>& files = place.module->files;
    if (place.source.file >= 0 && static_cast<std::size_t>(place.source.file) < files.size()) {
      const std::string& file = files[static_cast<std::size_t>(place.source.file)];
      side.source = fmt::format("{}:{}", file.substr(file.rfind('/') + 1), place.source.line);
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
  if (!side.function.empty()) text += " of " + side.function;
  if (!side.source.empty()) text += ", " + side.source;
  return text;
}

}  // namespace kernelwright::emulator
